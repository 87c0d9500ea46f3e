"""``python -m slackwater.registrar NAME``: the duties of `slackwater up` except starting processes.

Where a container engine starts the processes, this process publishes the event clock, registers
the queries and truncates the logs. All other processes wait for its registry entries, so it may
start at any time. Existing entries are kept: a second start uses the E0 and w of the first
(trace-24). The process is stateless. Once the queries are registered, the logs grow while it does
not run, and nothing else depends on it. On nodes it is not used: a node registers the queries
(``slackwater.registration.registering``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from slackwater.model.errors import DeploymentError, SlackwaterError, UsageError
from slackwater.registration.begins import Begins
from slackwater.registration.registration import Registration
from slackwater.registration.truncation import Truncation
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.entry import ProcessContext
from slackwater.runtime.service.heartbeat_view import HeartbeatView
from slackwater.runtime.service.heartbeats import (
    HeartbeatListener,
    HeartbeatSender,
)
from slackwater.runtime.service.registry import Registry

_log = logging.getLogger(__name__)

PROXIES_READY_S_MAX = 30.0
"""After this long a query is registered even if a proxy has not read its input to the end."""

LOOK_S = 1.0


async def main(context: ProcessContext, stopping: asyncio.Event) -> None:
    """Register the queries, then truncate logs until stopped."""
    deployment, transport = context.deployment, context.transport()
    clock = SystemClock()
    registration = Registration(transport, deployment, context.deployment_path, clock=clock)
    sender = HeartbeatSender(context.cluster, context.process, names=transport.names).start()
    listener = HeartbeatListener(transport).start()
    begins = Begins(Registry(transport), listener, clock)
    streams = deployment.streams.values()
    proxies = [name.process for stream in streams for name in stream.proxy_names]
    try:
        async with asyncio.TaskGroup() as group:
            registering = group.create_task(register(registration, listener, proxies, begins))
            tasks = (
                registering,
                group.create_task(_truncate(registration, registering, context)),
                group.create_task(begins.run()),
                group.create_task(_emit(sender, registering)),
            )
            await stopping.wait()
            for task in tasks:
                task.cancel()
    finally:
        sender.stop()
        listener.stop()


async def register(
    registration: Registration,
    listener: HeartbeatListener,
    proxies: Sequence[str],
    begins: Begins,
) -> None:
    """Publish the clock, wait for the proxies, register missing queries; retry on failure.

    ``begins`` records the begins of those that are registered.
    """
    while True:
        try:
            event_clock = await asyncio.to_thread(registration.publish_clock)
            missing = await asyncio.to_thread(registration.missing)
            if missing:
                # E0 depends on the readings, so proxies must first read their inputs to the end.
                await asyncio.to_thread(_wait_ready, listener, proxies)
                missing = await asyncio.to_thread(registration.register, missing, event_clock)
            begins.register((await asyncio.to_thread(registration.as_registered)).queries)
            if not missing:
                return
        except (UsageError, DeploymentError):
            raise  # retrying does not help
        except SlackwaterError as error:
            _log.info("queries are not registered yet: %s", error)
        await asyncio.sleep(LOOK_S)


async def _truncate(
    registration: Registration, registering: asyncio.Task[None], context: ProcessContext
) -> None:
    """Truncate the logs of the registered queries, first of some and then of all.

    A query may not be registered for hours, while its start is unknown; the logs of the others are
    truncated meanwhile. The registry has all queries that read the same children (trace-39).
    """
    while True:
        are_all = registering.done()
        try:
            registered = await asyncio.to_thread(registration.as_registered)
        except SlackwaterError as error:
            _log.info("the registry cannot be read: %s", error)
            await asyncio.sleep(LOOK_S)
            continue
        truncation = Truncation(context.transport(), registered.queries.values())
        rounds = asyncio.create_task(truncation.run(context.settings.truncate_every_s))
        try:
            await (rounds if are_all else asyncio.wait([registering]))
        finally:
            rounds.cancel()


def _wait_ready(listener: HeartbeatListener, processes: Sequence[str]) -> None:
    clock = SystemClock()

    def all_ready(view: HeartbeatView) -> bool:
        now_s = clock.monotonic_us() / 1e6
        return all(view.ready(process, now_s) for process in processes)

    if not listener.wait_for(all_ready, PROXIES_READY_S_MAX):
        _log.warning("registering although not all proxies have read their inputs")


async def _emit(sender: HeartbeatSender, registering: asyncio.Task[None]) -> None:
    """Report ready once all queries are registered."""
    while True:
        sender.update(ready=registering.done())
        await asyncio.sleep(LOOK_S)
