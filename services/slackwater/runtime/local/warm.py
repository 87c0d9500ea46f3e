"""Make the class archive that lets the embedded broker start in half the time.

    python -m slackwater.runtime.local.warm

Run once, by ``make setup``. A broker starts on an empty directory, answers, and ends; as it ends,
the JVM writes down the classes that were loaded (a dynamic class data sharing archive).
"""

import tempfile
from pathlib import Path

from slackwater.codec.paths import class_archive
from slackwater.runtime.local.broker import EmbeddedBroker


def make_archive(target: Path) -> None:
    """Write the archive to ``target``."""
    part = target.with_suffix(".part")
    target.unlink(missing_ok=True)  # it must not be used while it is made
    part.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-warm-") as folder,
        EmbeddedBroker(Path(folder), archive_to=part) as broker,
    ):
        assert broker.is_running()
    part.replace(target)


if __name__ == "__main__":
    make_archive(class_archive("broker"))
