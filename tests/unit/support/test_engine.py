"""Without Docker the tests on containers are skipped, with the instruction; never in CI."""

import pytest
from tests.support.engine import require


def test_without_docker_a_test_is_skipped_with_the_instruction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("SLACKWATER_DOCKER", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no docker command.*offline/prepare\.sh"):
        require()


def test_where_docker_is_promised_its_absence_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("SLACKWATER_DOCKER", "required")
    with pytest.raises(pytest.fail.Exception, match="required, but there is no docker command"):
        require()


def test_an_engine_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    monkeypatch.delenv("SLACKWATER_DOCKER", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"no Docker engine answers|no docker command"):
        require()
