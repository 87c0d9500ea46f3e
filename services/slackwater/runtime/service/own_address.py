"""The address under which other machines reach a listener of this one.

A listener on all addresses does not tell by which of them others reach it. It is taken to be the
one from which this machine reaches the broker: other nodes use that network, too.
"""

from __future__ import annotations

import socket
from typing import Final

from slackwater.model.http import HttpListenSpec

ALL_ADDRESSES: Final = ("0.0.0.0", "::")


def reachable_at(listen: HttpListenSpec, bootstrap: str) -> str:
    """Return scheme, host and port of the listener, as other machines reach it; empty: unknown."""
    host = _own_address(bootstrap) if listen.host in ALL_ADDRESSES else listen.host
    if not host:
        return ""
    scheme = "http" if listen.certificate_file is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listen.port}"


def _own_address(bootstrap: str) -> str:
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM)
            for family, kind, protocol, _, address in found:
                with socket.socket(family, kind, protocol) as probe:
                    probe.connect(address)  # sends nothing: it selects a route
                    return str(probe.getsockname()[0])
        except (OSError, ValueError):
            continue
    return ""
