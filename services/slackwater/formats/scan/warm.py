"""Compiles the scanner in advance.

    python -m slackwater.formats.scan.warm

Run once, by ``make setup`` and while an image is built.
"""

import shutil

from slackwater.formats.messages import Messages
from slackwater.formats.scan.compiled import CODE_FOLDER
from slackwater.formats.scan.scanner import Scanner
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec


def warm() -> None:
    """Compile, check that the result works, and remove the code of earlier sources."""
    spec = StreamSpec(
        "warm", KeySpec(field="k"), TimeSpec(field="t", unit="ms"), (FieldSpec("v", "v"),)
    )
    scanned = Scanner(spec).scan(Messages.of([b'{"k":"a","t":1,"v":1.5}']))
    assert scanned.stimes.tolist() == [1_000]
    for folder in CODE_FOLDER.parent.glob("scan-*"):
        if folder != CODE_FOLDER:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    warm()
