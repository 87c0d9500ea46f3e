"""Where the project's own files lie: schemas, jars, the POMs.

An editable install runs from the repository, a container from a copy of it. Both have the same
tree, so one root is enough: SLACKWATER_HOME if it is set, else the repository that this file
stands in. It lives in the codec because the schemas are needed here first; the runtime builds on
it. Package data was the alternative; it would hide the contracts on the wire inside the code.
"""

import os
from functools import cache
from pathlib import Path

from slackwater.model.errors import EnvironmentProblem

HOME_VARIABLE = "SLACKWATER_HOME"


def home() -> Path:
    """The root of the project's tree."""
    given = os.environ.get(HOME_VARIABLE)
    root = Path(given) if given else Path(__file__).resolve().parents[3]
    return _checked(root)


def schemas_dir() -> Path:
    """The folder of the Avro schemas and of topics.toml."""
    return home() / "schemas"


def jars_dir(of: str) -> Path:
    """Where ``make setup`` puts the jars of the broker or of Spark, and the archive of classes."""
    return home() / ".slackwater-jars" / of


def class_archive(of: str) -> Path:
    """The archive of classes that the JVM of the broker or of Spark starts with, if it is there."""
    return jars_dir(of) / "classes.jsa"


def class_sharing(of: str, archive_to: Path | None = None) -> list[str]:
    """A JVM's options: half of a start is loading classes, unless they are mapped from a file.

    With ``archive_to`` it writes that file instead, as it ends. An archive that does not fit
    (another Java, other jars) is ignored by the JVM, silently if its own log is off.
    """
    quiet = ["-Xlog:disable", "-Xlog:all=error:stderr"]
    if archive_to is not None:
        return [*quiet, f"-XX:ArchiveClassesAtExit={archive_to}"]
    archive = class_archive(of)
    return [*quiet, f"-XX:SharedArchiveFile={archive}"] if archive.is_file() else quiet


@cache
def _checked(root: Path) -> Path:
    if not (root / "schemas").is_dir():
        raise EnvironmentProblem(
            f"no folder schemas in {root}: set {HOME_VARIABLE} to the root of the project"
        )
    return root.resolve()
