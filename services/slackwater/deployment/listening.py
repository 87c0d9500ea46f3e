"""Checks of the HTTP listener: its address, and the credentials that its streams require.

Without a token, only this machine may post. An address that other machines can reach is refused
unless each stream with ``http`` has a ``token_file``. A token that is sent without TLS can be read
in transit. This causes only a warning, because TLS may end at a reverse proxy.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import HttpListenShape
from slackwater.model.deployment import HttpListenSpec, StreamSpec

_ADDRESS: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\s:\[\]]+)):(?P<port>[0-9]+)"
)
_PORT_MAX: Final = 65_535


def parse_address(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT`` or ``[IPV6]:PORT``; ``ValueError`` with the reason."""
    found = _ADDRESS.fullmatch(text)
    if found is None or len(found["port"]) > len(str(_PORT_MAX)):
        raise ValueError(f"{text!r} is not a HOST:PORT, like 127.0.0.1:8088")
    port = int(found["port"])
    if not 0 < port <= _PORT_MAX:
        raise ValueError(f"port {port} is not between 1 and {_PORT_MAX}")
    return found["six"] or found["host"], port


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the address; of names, only ``localhost``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def check_listening(
    shape: HttpListenShape | None, streams: Mapping[str, StreamSpec], findings: Findings
) -> HttpListenSpec:
    """Return the listener; the default one if the declared one has an error."""
    shape = shape or HttpListenShape()
    posted = {name: spec.http for name, spec in streams.items() if spec.http is not None}
    try:
        host, port = parse_address(shape.listen)
    except ValueError as error:
        findings.error(("http", "listen"), str(error))
        return HttpListenSpec()
    for name, http in posted.items():
        if http.token_file is None and not is_loopback(host):
            findings.error(
                ("streams", name, "http"),
                f"needs a token_file: other machines can reach {shape.listen}, and any process on "
                "them could post readings",
            )
    if posted and shape.tls is None and not is_loopback(host):
        findings.warn(
            ("http", "listen"),
            f"other machines reach {shape.listen} without TLS, and tokens can be read in transit: "
            "add tls, or put a reverse proxy with TLS in front",
        )
    if shape.tls is None:
        return HttpListenSpec(host, port)
    return HttpListenSpec(host, port, shape.tls.certificate, shape.tls.key)
