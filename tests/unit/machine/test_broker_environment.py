"""Missing prerequisites are reported in one sentence, before any process is started."""

import fcntl
import socket
from pathlib import Path

import pytest

from slackwater.machine import broker as module
from slackwater.machine.broker import EmbeddedBroker
from slackwater.machine.broker_properties import HOST
from slackwater.model.errors import EnvironmentProblem


@pytest.fixture
def equipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a home with a complete set of (empty) jars, and a Java that cannot run."""
    root = tmp_path / "home"
    jars = root / ".slackwater-jars" / "broker"
    jars.mkdir(parents=True)
    (jars / ".complete").touch()
    (root / "schemas").mkdir()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'this Java is broken' >&2\nexit 7\n")
    java.chmod(0o755)
    monkeypatch.setenv("SLACKWATER_HOME", str(root))
    monkeypatch.setenv("PATH", f"{java.parent}:/usr/bin:/bin")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    return root


def problem_of(broker: EmbeddedBroker) -> str:
    with pytest.raises(EnvironmentProblem) as caught:
        broker.start()
    assert caught.value.exit_code == 3
    assert "\n" not in caught.value.message
    assert not broker.is_running()
    return caught.value.message


def test_a_missing_java_names_the_package(
    equipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert "apt-get install openjdk-17" in problem_of(EmbeddedBroker(tmp_path / "data"))


def test_a_wrong_java_home_is_named(
    equipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert f"JAVA_HOME is {tmp_path / 'jdk'}" in problem_of(EmbeddedBroker(tmp_path / "data"))


def test_a_full_disk_is_named_before_the_start(
    equipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kafka would start there and not respond, which takes minutes to be found."""
    monkeypatch.setattr(module, "ROOM_BYTES_MIN", 2**70)
    assert "make room there, or choose another" in problem_of(EmbeddedBroker(tmp_path / "data"))


def test_an_interrupted_set_of_jars_counts_as_missing(equipped: Path, tmp_path: Path) -> None:
    (equipped / ".slackwater-jars" / "broker" / ".complete").unlink()
    assert "run make setup" in problem_of(EmbeddedBroker(tmp_path / "data"))


def test_a_wrong_home_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLACKWATER_HOME", str(tmp_path))
    assert f"no folder schemas in {tmp_path}" in problem_of(EmbeddedBroker(tmp_path / "data"))


def test_a_port_in_use_is_named(equipped: Path, tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind((HOST, 0))
        other.listen()
        port = other.getsockname()[1]
        message = problem_of(EmbeddedBroker(tmp_path / "data", port=port))
    assert f"port {port} on 127.0.0.1 is in use" in message


def test_a_data_directory_that_cannot_be_made_is_named(equipped: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    message = problem_of(EmbeddedBroker(tmp_path / "file" / "data"))
    assert str(tmp_path / "file" / "data") in message
    assert "Not a directory" in message


def test_a_live_broker_on_the_directory_is_named(
    equipped: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "LOCK_S_MAX", 0.05)
    with (tmp_path / "lock").open("w") as held:
        held.write("4711")
        held.flush()
        fcntl.flock(held, fcntl.LOCK_EX)
        message = problem_of(EmbeddedBroker(tmp_path))
    assert f"another broker (process 4711) runs on {tmp_path}" in message


def test_the_error_of_a_failed_format_is_passed_on(equipped: Path, tmp_path: Path) -> None:
    assert "this Java is broken" in problem_of(EmbeddedBroker(tmp_path / "data"))


def test_a_broker_that_ends_while_starting_is_reported_with_its_reason(
    equipped: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "formatted").touch()
    (tmp_path / "bin" / "java").write_text(
        "#!/bin/sh\n"
        f"echo '2026-01-01T00:00:00,000 ERROR the disk is tired (Server)' >> {data}/broker.log\n"
        "exit 1\n"
    )
    message = problem_of(EmbeddedBroker(data))
    assert "ended with code 1" in message
    assert "the disk is tired" in message


def test_an_old_error_in_the_log_is_not_taken_for_the_reason(
    equipped: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "formatted").touch()
    (data / "broker.log").write_text("2020-01-01T00:00:00,000 ERROR long ago (KafkaServer)\n")
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    message = problem_of(EmbeddedBroker(data))
    assert "long ago" not in message
    assert "broker.out" in message


def test_an_unreachable_broker_does_not_answer() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        port = unused.getsockname()[1]
    assert not module.answers(f"{HOST}:{port}", timeout_s=0.2)


def test_chosen_ports_differ() -> None:
    ports = module._free_ports(0, 0, 0)
    assert len(set(ports)) == 3
    again = module._free_ports(ports.clients, ports.clients, 0)
    assert again.clients == ports.clients
    assert len(set(again)) == 3
