"""The start of Spark's processes: the settings that an executor shares with its driver."""

from pathlib import Path

import pytest

from slackwater.codec import paths
from slackwater.model.errors import EnvironmentProblem
from slackwater_spark.session import (
    CLUSTER_SECURITY,
    SECRET_CHARS_MIN,
    SessionSettings,
    _cluster_security,
    _java_command,
)

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
    # The archive is valid for exactly this class path.
    assert conf(words)["spark.executor.extraClassPath"] == words[words.index("-cp") + 1]
    assert f"-XX:SharedArchiveFile={archive}" in set(options) & set(words)
    assert options[-3:] == [word for word in words if word.startswith("-Dorg.apache.avro")]


@pytest.mark.parametrize("alike", [False, True])
def test_one_jvm_that_is_all_needs_none_of_this(tmp_path: Path, alike: bool) -> None:
    words = command(tmp_path, "local[4]", workers_alike=alike)

    assert "--jars" not in words
    assert not conf(words)


def with_secret(tmp_path: Path, content: str | None, master: str = CLUSTER) -> SessionSettings:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    return SessionSettings("t", tmp_path, master, secret_file=file)


def test_a_driver_of_a_cluster_proves_its_secret_and_no_command_line_has_it(tmp_path: Path) -> None:
    secret = "s" * SECRET_CHARS_MIN
    settings = with_secret(tmp_path, secret + "\n")

    assert _cluster_security(settings) == CLUSTER_SECURITY | {"spark.authenticate.secret": secret}
    assert not any(secret in word for word in _java_command(settings))


@pytest.mark.parametrize(
    ("content", "text"),
    [(None, "cannot be read"), ("", "holds no secret"), ("short", "openssl rand -base64 48")],
)
def test_a_cluster_without_its_secret_is_not_begun(
    tmp_path: Path, content: str | None, text: str
) -> None:
    with pytest.raises(EnvironmentProblem, match=text) as error:
        _cluster_security(with_secret(tmp_path, content))
    assert "short" not in error.value.message


def test_without_a_cluster_no_secret_is_needed(tmp_path: Path) -> None:
    assert _cluster_security(with_secret(tmp_path, None, "local[4]")) == {}
    assert _cluster_security(SessionSettings("t", tmp_path, CLUSTER)) == {}
