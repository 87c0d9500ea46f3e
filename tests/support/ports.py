"""Ports for servers of tests.

A port that the kernel hands out (bind to 0) is from the range of outgoing connections. Between the
choice and the start of the server any connection, of any process of the tests that run in parallel,
may take it, and clients of a broker that has ended, whose port was of that range, go on connecting
to it. So ports are drawn from below that range, and none is handed out twice by a process.
"""

from __future__ import annotations

import random
import socket
from typing import Final

PORTS: Final = range(15_000, 32_000)
_random: Final = random.Random()  # processes that run in parallel draw different ports
_taken: Final[set[int]] = set()


def free_port() -> int:
    """Return a port that is free on loopback."""
    while True:
        port = _random.choice(PORTS)
        if port in _taken:
            continue
        _taken.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
