"""The port of the HTTP input is checked before anything is started."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from slackwater.machine.http_port import check_http_port
from slackwater.model.deployment import HttpListenSpec
from slackwater.model.errors import EnvironmentProblem


def test_a_port_in_use_is_refused_with_what_to_change() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=rf"{port} .* in use; .* change http.listen"):
            asyncio.run(check_http_port(HttpListenSpec(port=port), 0.0))
    asyncio.run(check_http_port(HttpListenSpec(port=port), 0.0))


def test_a_port_that_becomes_free_is_waited_for() -> None:
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    ending = threading.Timer(0.3, taken.close)
    ending.start()
    asyncio.run(check_http_port(HttpListenSpec(port=port), 60.0))
    ending.join()
    assert taken.fileno() == -1
