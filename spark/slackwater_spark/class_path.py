"""The class path of Spark's JVM: the connectors, and those of PySpark's jars that are ever used.

PySpark brings 460 MB of jars. ``unused-jars`` lists what a Kafka-to-Kafka query without state
never loads; the images of containers do not have it at all. Left out, it is not opened at a start,
and machine learning does not register its functions with each session, which took 0.8 of the 3.5 s
until there is one.

A class archive is valid for exactly one class path: ``make setup`` makes it anew when this module
or the list changes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from slackwater.codec.paths import jars_dir
from slackwater.model.errors import EnvironmentProblem

UNUSED: Final = Path(__file__).parent / "unused-jars"


def class_path() -> str:
    """Return the class path, in the same order at each start."""
    globs = tuple(unused_globs())
    used = (jar for jar in pyspark_jars() if not any(fnmatch(jar.name, glob) for glob in globs))
    return ":".join(map(str, [*connector_jars(), *used]))


def unused_globs() -> Iterator[str]:
    """Yield the patterns of file names in ``unused-jars``."""
    for line in UNUSED.read_text("utf-8").splitlines():
        yield from line.partition("#")[0].split()


def connector_jars() -> list[Path]:
    """Return the connector jars that ``make setup`` fetched, beside PySpark's own."""
    folder = jars_dir("spark")
    jars = sorted(folder.glob("*.jar"))
    # Only a complete set has the marker.
    if not jars or not (folder / ".complete").is_file():
        raise EnvironmentProblem(f"no connector jars for Spark in {folder}: run make setup")
    return jars


def pyspark_jars() -> list[Path]:
    """Return PySpark's jars, without an import of PySpark: it takes half a second."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise EnvironmentProblem("PySpark is not installed: run make setup")
    return sorted(Path(found.origin).parent.glob("jars/*.jar"))
