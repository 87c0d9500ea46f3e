"""Runs a gateway in this process until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager

from slackwater.gateway.access import Access
from slackwater.gateway.server import Listen, serve
from slackwater.gateway.sources import ControlsSeen, Sources
from slackwater.model.names import Names
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.priority import work_behind_others


def run_gateway(
    listen: Listen,
    access: Access,
    cluster: Cluster,
    names: Names,
    controls: AbstractContextManager[ControlsSeen],
    say: Callable[[str], None],
) -> None:
    """Serve until stopped, behind the pipeline; ``say`` prints a line when the page can be opened.

    Raises:
        EnvironmentProblem: the address cannot be listened on, or others reach it without tokens.
    """

    async def run() -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, stopping.set)
        await serve(
            *(listen, access, Sources(cluster, names, controls), stopping),
            lambda: say(f"the page is at {listen.url}"),
        )

    work_behind_others()
    asyncio.run(run())
