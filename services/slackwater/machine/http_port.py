"""Checks the port of the HTTP input before anything is started.

Its proxy checks it too, but that is known only after the start of Kafka, and after the proxy has
been restarted several times. A proxy whose `up` was killed ends within a second, so a port is tried
for a while.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Final

from slackwater.model.deployment import HttpListenSpec
from slackwater.model.errors import EnvironmentProblem

FREE_S_MAX: Final = 3.0
"""Maximum wait for a port that another process has."""
_TRY_S: Final = 0.1


async def check_http_port(listen: HttpListenSpec, free_s_max: float = FREE_S_MAX) -> None:
    """Return once the port can be listened on.

    Raises:
        EnvironmentProblem: another process has it, or the address is not of this machine.
    """
    loop = asyncio.get_running_loop()
    until_s = loop.time() + free_s_max
    while (why := why_not_listened(listen.host, listen.port)) is not None:
        if loop.time() >= until_s:
            raise EnvironmentProblem(
                f"{listen.host}:{listen.port} cannot be listened on for HTTP: {why}; another"
                " process may use it: change http.listen in the deployment file"
            )
        await asyncio.sleep(_TRY_S)


def why_not_listened(host: str, port: int) -> str | None:
    """Return why an address cannot be listened on now; None if it can."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        socket.create_server(address, family=family).close()
    except OSError as error:
        return os.strerror(error.errno) if error.errno else str(error)  # without the address
    return None
