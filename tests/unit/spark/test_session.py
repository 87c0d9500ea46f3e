"""How Spark's processes are started: what an executor gets of what its driver has."""

from pathlib import Path

import pytest

from slackwater.codec import paths
from slackwater_spark.session import SessionSettings, _java_command

CLUSTER = "spark://master:7077"


def command(tmp_path: Path, master: str, *, workers_alike: bool = False) -> list[str]:
    return _java_command(SessionSettings("t", tmp_path, master, workers_alike=workers_alike))


def conf(words: list[str]) -> dict[str, str]:
    named = [words[at + 1] for at, word in enumerate(words) if word == "--conf"]
    return dict(text.split("=", 1) for text in named)


def test_executors_anywhere_are_sent_the_connectors(tmp_path: Path) -> None:
    words = command(tmp_path, CLUSTER)

    assert "spark-sql-kafka" in words[words.index("--jars") + 1]
    assert "spark.executor.extraClassPath" not in conf(words)
    assert "avro.limits" in conf(words)["spark.executor.extraJavaOptions"]


def test_executors_like_the_driver_have_its_class_path_and_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "classes.jsa"
    archive.touch()
    monkeypatch.setattr(paths, "class_archive", lambda _of: archive)
    words = command(tmp_path, CLUSTER, workers_alike=True)
    options = conf(words)["spark.executor.extraJavaOptions"].split()

    assert "--jars" not in words
    # The archive is good for exactly this class path.
    assert conf(words)["spark.executor.extraClassPath"] == words[words.index("-cp") + 1]
    assert f"-XX:SharedArchiveFile={archive}" in set(options) & set(words)
    assert options[-3:] == [word for word in words if word.startswith("-Dorg.apache.avro")]


@pytest.mark.parametrize("alike", [False, True])
def test_one_jvm_that_is_all_needs_none_of_this(tmp_path: Path, alike: bool) -> None:
    words = command(tmp_path, "local[4]", workers_alike=alike)

    assert "--jars" not in words
    assert not conf(words)
