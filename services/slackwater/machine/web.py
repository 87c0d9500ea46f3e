"""The gateway as a process of a deployment on this machine (`up --web`, `demo --web`).

It is the command ``slackwater gateway`` with the deployment's data directory. The supervisor keeps
it running as it keeps the others; it only reads, so it has no heartbeat, and is ready when its port
takes connections. Its port is checked before anything is started.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Final

from slackwater.deployment.listening import is_loopback, parse_address
from slackwater.machine.http_port import why_not_listened
from slackwater.machine.launchers import ProcessSpec
from slackwater.machine.layout import STOP_FIRST, Launch
from slackwater.model.errors import EnvironmentProblem, UsageError
from slackwater.model.kinds import GATEWAY

HOST: Final = "127.0.0.1"
PORT: Final = 8090
PORTS_TRIED: Final = 10
ANSWER_S_MAX: Final = 0.2


@dataclass(frozen=True, slots=True)
class WebAddress:
    """Where the page of a deployment is; only this machine reaches it."""

    host: str = HOST
    port: int = PORT

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{self}/"

    def takes_connections(self) -> bool:
        """Whether something listens there now."""
        try:
            socket.create_connection((self.host, self.port), ANSWER_S_MAX).close()
        except OSError:
            return False
        return True


def find_web(text: str) -> WebAddress:
    """Return an address that can be listened on: HOST:PORT, or if empty the first free one.

    Raises:
        UsageError: it is not HOST:PORT, or other machines reach it.
        EnvironmentProblem: another process has it, or all ports that are tried.
    """
    if not text:
        free = (
            port for port in range(PORT, PORT + PORTS_TRIED) if why_not_listened(HOST, port) is None
        )
        if (port := next(free, None)) is not None:
            return WebAddress(HOST, port)
        raise EnvironmentProblem(
            f"the ports {PORT} to {PORT + PORTS_TRIED - 1} are all in use: name another one for the"
            " page, as in --web 127.0.0.1:9000"
        )
    try:
        host, port = parse_address(text)
    except ValueError as error:
        raise UsageError(f"--web: {error}") from None
    if not is_loopback(host):
        raise UsageError(
            f"--web {text}: other machines reach this address; for them run `slackwater gateway"
            f" --listen {text} --tokens FILE` beside it"
        )
    if (why := why_not_listened(host, port)) is not None:
        raise EnvironmentProblem(
            f"the page cannot be at {text}: {why}; another process may use it: name another port"
        )
    return WebAddress(host, port)


def gateway_spec(web: WebAddress, launch: Launch, prefix: str) -> ProcessSpec:
    """Return the process of the gateway. It is stopped first: its readers see that it ends."""
    where = ("--bootstrap", launch.bootstrap, "--data-dir", str(launch.data_dir))
    command = (launch.python, "-m", "slackwater.cli", "gateway", "--listen", str(web), *where)
    of = ("--prefix", prefix) if prefix else ()
    return ProcessSpec(GATEWAY, (*command, *of), STOP_FIRST, env=launch.environment)
