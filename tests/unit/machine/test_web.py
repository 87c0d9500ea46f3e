"""The page of a deployment on this machine: its address, its port, its process."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.support.ports import free_port

from slackwater.machine import web
from slackwater.machine.layout import Launch
from slackwater.machine.web import WebAddress, find_web, gateway_spec
from slackwater.model.errors import EnvironmentProblem, UsageError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("8090", "'8090' is not a HOST:PORT"),
        ("localhost:", "is not a HOST:PORT"),
        ("127.0.0.1:0", "port 0 is not between 1 and 65535"),
        ("127.0.0.1:65536", "port 65536 is not between"),
        ("0.0.0.0:8090", "slackwater gateway --listen 0.0.0.0:8090 --tokens FILE"),
        ("[::]:8090", "other machines reach this address"),
        ("plant.example:8090", "other machines reach this address"),
    ],
)
def test_what_is_not_an_address_of_this_machine_alone_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as found:
        find_web(text)
    assert message in found.value.message


def test_a_port_that_is_in_use_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"cannot be at 127.0.0.1:{port}: Address"):
            find_web(f"127.0.0.1:{port}")
    assert find_web(f"127.0.0.1:{port}") == WebAddress("127.0.0.1", port)


def test_the_default_is_the_next_free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_port()
    monkeypatch.setattr(web, "PORT", first)
    monkeypatch.setattr(web, "PORTS_TRIED", 1)
    assert find_web("") == WebAddress("127.0.0.1", first)
    with socket.create_server(("127.0.0.1", first)):
        with pytest.raises(EnvironmentProblem, match="are all in use"):
            find_web("")
        monkeypatch.setattr(web, "PORTS_TRIED", 10)
        assert first < find_web("").port < first + 10


def test_it_is_ready_when_its_port_takes_connections() -> None:
    at = WebAddress(port=free_port())
    assert not at.takes_connections()
    with socket.create_server((at.host, at.port)):
        assert at.takes_connections()


def test_the_process_gets_files_never_their_content() -> None:
    launch = Launch(Path("d"), "kafka:1", Path("/data"), python="py", kafka_config=Path("/k"))
    spec = gateway_spec(WebAddress("::1", 9000), launch, "plant-7")
    assert spec.command == (
        *("py", "-m", "slackwater.cli", "gateway", "--listen", "[::1]:9000"),
        *("--bootstrap", "kafka:1", "--data-dir", "/data", "--prefix", "plant-7"),
    )
    assert spec.env["SLACKWATER_KAFKA_CONFIG"] == "/k"
    assert "--prefix" not in gateway_spec(WebAddress(), launch, "").command
