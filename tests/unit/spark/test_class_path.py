"""The jars that Spark's JVM has, and those that it does not."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from slackwater_spark.class_path import class_path, connector_jars, pyspark_jars, unused_globs


def test_each_pattern_leaves_out_a_jar_of_this_version() -> None:
    names = [jar.name for jar in pyspark_jars()]
    for glob in unused_globs():
        assert any(fnmatch(name, glob) for name in names), f"{glob} matches nothing"


def test_what_is_never_loaded_is_not_opened_at_a_start() -> None:
    names = {Path(jar).name for jar in class_path().split(":")}
    assert not any(name.startswith("spark-mllib_") for name in names)
    assert {jar.name for jar in connector_jars()} < names
    assert any(name.startswith("spark-sql_") for name in names)
    assert class_path() == class_path()
