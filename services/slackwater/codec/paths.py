"""Paths of the project's own files: schemas, jars, the POMs.

An editable install runs from the repository, a container from a copy of it. Both have the same
tree, so one root suffices: SLACKWATER_HOME if set, else the repository that contains this file.
Rejected: package data, which would hide the wire schemas inside the code.
"""

import os
from functools import cache
from pathlib import Path

from slackwater.model.errors import EnvironmentProblem

HOME_VARIABLE = "SLACKWATER_HOME"


def home() -> Path:
    """Return the root of the project's tree.

    Raises:
        EnvironmentProblem: it has no folder ``schemas``.
    """
    given = os.environ.get(HOME_VARIABLE)
    root = Path(given) if given else Path(__file__).resolve().parents[3]
    return _checked(root)


def schemas_dir() -> Path:
    """Return the folder of the Avro schemas and topics.toml."""
    return home() / "schemas"


def jars_dir(of: str) -> Path:
    """Return the folder in which ``make setup`` puts the jars of the broker or of Spark."""
    return home() / ".slackwater-jars" / of


def class_archive(of: str) -> Path:
    """Return the path of the class archive for the broker's or Spark's JVM, which may not exist."""
    return jars_dir(of) / "classes.jsa"


def class_sharing(of: str, archive_to: Path | None = None) -> list[str]:
    """Return JVM options for class data sharing, which halves the start of a JVM.

    With ``archive_to`` the JVM writes the archive when it exits. A JVM ignores an archive that was
    made with another Java or other jars; with its log disabled it prints no warning.
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
