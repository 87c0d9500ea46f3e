"""``python -m slackwater.registrar NAME``: what `slackwater up` does beside starting processes.

Where containers are started by their engine nobody publishes the event clock, registers the queries
and truncates the logs; this process does. Everybody waits in the registry for what it writes, so it
may start at any time. What is registered is left as it is: a second start finds the E0 and w of the
first (trace-24). It keeps nothing itself, and nobody needs it once the queries are registered,
except that the logs grow until it is back. It ends when there is a controller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from slackwater.model.errors import DeploymentError, SlackwaterError, UsageError
from slackwater.model.names import proxy_process
from slackwater.runtime.local.registration import Registration
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import ProcessContext
from slackwater.runtime.service.heartbeats import HeartbeatListener, HeartbeatSender, HeartbeatView
from slackwater.runtime.service.truncation import Truncation

_log = logging.getLogger(__name__)

PROXIES_READY_S_MAX = 30.0
"""After this long a query is registered although a proxy has not read its input to the end."""

LOOK_S = 1.0


async def main(context: ProcessContext, stopping: asyncio.Event) -> None:
    """Register, then truncate, until told to stop."""
    deployment, transport = context.deployment, context.transport()
    clock = SystemClock()
    registration = Registration(transport, deployment, context.deployment_path, clock=clock)
    sender = HeartbeatSender(context.cluster, context.process, names=transport.names).start()
    listener = HeartbeatListener(transport).start()
    truncation = Truncation(transport, deployment.queries.values())
    proxies = [proxy_process(stream) for stream in deployment.streams]
    try:
        async with asyncio.TaskGroup() as group:
            registering = group.create_task(register(registration, listener, proxies))
            tasks = (
                registering,
                group.create_task(truncation.run(context.settings.truncate_every_s)),
                group.create_task(_emit(sender, registering)),
            )
            await stopping.wait()
            for task in tasks:
                task.cancel()
    finally:
        sender.stop()
        listener.stop()


async def register(
    registration: Registration, listener: HeartbeatListener, proxies: Sequence[str]
) -> None:
    """Publish the clock, wait for the proxies, register what is missing; as often as need be."""
    while True:
        try:
            event_clock = await asyncio.to_thread(registration.publish_clock)
            missing = await asyncio.to_thread(registration.missing)
            if missing:
                # They read on to the end of their inputs first: E0 follows from what they find.
                await asyncio.to_thread(_wait_ready, listener, proxies)
                missing = await asyncio.to_thread(registration.register, missing, event_clock)
            if not missing:
                return
        except (UsageError, DeploymentError):
            raise  # no waiting mends it
        except SlackwaterError as error:
            _log.info("queries are not registered yet: %s", error)
        await asyncio.sleep(LOOK_S)


def _wait_ready(listener: HeartbeatListener, processes: Sequence[str]) -> None:
    clock = SystemClock()

    def all_ready(view: HeartbeatView) -> bool:
        now_s = clock.monotonic_us() / 1e6
        return all(view.ready(process, now_s) for process in processes)

    if not listener.wait_for(all_ready, PROXIES_READY_S_MAX):
        _log.warning("registering although not all proxies have read their inputs")


async def _emit(sender: HeartbeatSender, registering: asyncio.Task[None]) -> None:
    """It is ready when all is registered."""
    while True:
        sender.update(ready=registering.done())
        await asyncio.sleep(LOOK_S)
