"""The option ``--web``, whose value may be left out, and errors before anything starts."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest
from tests.support.ports import free_port

from slackwater.cli import app as cli
from slackwater.cli.web import choose_web, with_value
from slackwater.machine import web

FILE = """\
apiVersion: slackwater/v1
clock: wall
streams:
  room-1: {key: {value: hall}, time: {column: ts, unit: ms}, fields: [temperature], disorder: 100ms}
queries:
  climate: {from: [room-1], window: {size: 2s}, aggregate: [count], bound: 2s}
"""


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ("--web rooms.yaml", "--web= rooms.yaml"),
        ("rooms.yaml --web", "rooms.yaml --web="),
        ("--web --port 1 rooms.yaml", "--web= --port 1 rooms.yaml"),
        ("--web 127.0.0.1:9 rooms.yaml", "--web 127.0.0.1:9 rooms.yaml"),
        ("--web [::1]:9 rooms.yaml", "--web [::1]:9 rooms.yaml"),
        ("--web 8090 rooms.yaml", "--web 8090 rooms.yaml"),
        ("--web=h:1 rooms.yaml", "--web=h:1 rooms.yaml"),
        ("rooms.yaml", "rooms.yaml"),
    ],
)
def test_the_address_may_be_left_out(args: str, expected: str) -> None:
    assert [*with_value(args.split())] == expected.split()


@pytest.mark.parametrize("command", [["up", "d.yaml"], ["demo"]])
def test_a_port_in_use_is_an_error_before_anything_starts(
    command: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "d.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", free_port())) as other:
        at = f"127.0.0.1:{other.getsockname()[1]}"
        monkeypatch.setattr(sys, "argv", ["slackwater", *command, "--web", at])
        with pytest.raises(SystemExit) as caught:
            cli.main()
    assert caught.value.code == 3
    reported = capsys.readouterr().err
    assert f"slackwater: the page cannot be at {at}: Address already in use" in reported
    assert not (tmp_path / ".slackwater").exists()


def test_another_port_than_the_default_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = free_port()
    monkeypatch.setattr(web, "PORT", first)
    with socket.create_server(("127.0.0.1", first)):
        chosen = choose_web("")
    assert chosen is not None
    assert f"port {first} is in use; the page takes port {chosen.port}\n" in capsys.readouterr().out
    assert choose_web(None) is None
    assert choose_web("") == web.WebAddress(port=first)
    assert capsys.readouterr().out == ""
