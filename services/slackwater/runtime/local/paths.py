"""Where the runtime finds jars and Java, with one sentence when it does not."""

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
    """The embedded broker's jars."""
    return sorted(_jars_dir("broker").glob("*.jar"))


def spark_jars() -> list[Path]:
    """The connector jars that go beside PySpark's own."""
    return sorted(_jars_dir("spark").glob("*.jar"))


def java_executable() -> str:
    """The Java to start: JAVA_HOME's, else the one on the path."""
    java_home = os.environ.get("JAVA_HOME")
    if java_home:
        candidate = Path(java_home) / "bin" / "java"
        if candidate.is_file():
            return str(candidate)
        raise EnvironmentProblem(f"JAVA_HOME is {java_home}, but there is no bin/java in it")
    found = shutil.which("java")
    if found is None:
        raise EnvironmentProblem(
            "Java is missing: install Java 17 (on Debian: apt-get install openjdk-17-jre-headless)"
        )
    return found


def _jars_dir(name: str) -> Path:
    # Only a whole set carries the mark: `make setup` fills a new folder and swaps it in.
    folder = jars_dir(name)
    if not (folder / ".complete").is_file():
        raise EnvironmentProblem(f"the {name}'s jars are missing in {folder}: run make setup")
    return folder
