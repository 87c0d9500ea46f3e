"""Finds the jars and the Java runtime; raises ``EnvironmentProblem`` if one is missing."""

import os
import shutil
from pathlib import Path

from slackwater.codec.paths import home, jars_dir
from slackwater.model.errors import EnvironmentProblem

__all__ = [
    "broker_jars",
    "home",
    "java_executable",
    "spark_jars",
]


def broker_jars() -> list[Path]:
    """Return the jars of the embedded broker."""
    return sorted(_jars_dir("broker").glob("*.jar"))


def spark_jars() -> list[Path]:
    """Return the connector jars that PySpark needs in addition to its own."""
    return sorted(_jars_dir("spark").glob("*.jar"))


def java_executable() -> str:
    """Return the Java executable: that of JAVA_HOME, else the one on the path."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        candidate = Path(java_home) / "bin" / "java"
        if candidate.is_file():
            return str(candidate)
        raise EnvironmentProblem(f"JAVA_HOME is {java_home}, which has no bin/java")
    found = shutil.which("java")
    if found is None:
        raise EnvironmentProblem(
            "Java is missing: install Java 17 (on Debian: apt-get install openjdk-17-jre-headless)"
        )
    return found


def _jars_dir(name: str) -> Path:
    # Only a complete set has the marker: `make setup` fills a new folder and then renames it.
    folder = jars_dir(name)
    if not (folder / ".complete").is_file():
        raise EnvironmentProblem(f"the {name}'s jars are missing in {folder}: run make setup")
    return folder
