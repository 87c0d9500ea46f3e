"""Creates the class archive with which the embedded broker starts in half the time, and more.

    python -m slackwater.machine.warm

``make setup`` runs this program once. A broker starts on an empty directory, answers, and ends. At
its end the JVM writes the classes that were loaded to an archive (dynamic class data sharing). The
features with which its directory was formatted are kept as well.
"""

import shutil
import tempfile
from pathlib import Path

from slackwater.codec.paths import class_archive
from slackwater.machine.broker import FEATURES, EmbeddedBroker, features_file


def make_archive(target: Path) -> None:
    """Write the archive to ``target``."""
    part = target.with_suffix(".part")
    features = features_file()
    features.unlink(missing_ok=True)  # Kafka's own tool writes them
    target.unlink(missing_ok=True)  # no broker may use it while it is made
    part.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="slackwater-warm-") as folder,
        EmbeddedBroker(Path(folder), archive_to=part) as broker,
    ):
        assert broker.is_running()
        shutil.copyfile(Path(folder) / "logs" / FEATURES, features)
    part.replace(target)


if __name__ == "__main__":
    make_archive(class_archive("broker"))
