"""The fence of a part on a real broker: who prepares fences nobody, who opens fences all others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.host.committer import PartCommitter
from slackwater.machine.deaths import DeathReports
from slackwater.model.names import Names
from slackwater.model.records import Position, RootState
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater.runtime.logs.transport import LogError
from slackwater.runtime.service.heartbeats import HeartbeatListener, HeartbeatSender
from slackwater.runtime.service.parts import PartBeat
from slackwater.runtime.service.state import read_root_state

STATE = RootState("root/fenced.0", 1, 5, 0, 10, 20, (Position(10),), (), term=1, copy=0)


def copy_of(bootstrap: str) -> PartCommitter:
    """Return the committer of a copy of part 0."""
    config: Any = SimpleNamespace(fragment=STATE.fragment, query="fenced", part=0, fields=("v",))
    return PartCommitter(Cluster(bootstrap), Names(), config, ("count",))


def test_a_copy_that_prepares_its_take_over_fences_nobody_before_it(bootstrap: str) -> None:
    ensure_topics(bootstrap, topics_for([], [QueryTopics("fenced", 1, 1, 1)]), WAIT_S_MAX)

    async def take_turns() -> None:
        a, b = copy_of(bootstrap), copy_of(bootstrap)
        await a.open()
        await a.claim(STATE)
        await b.prepare()
        await a.claim(replace(STATE, next_seq=6))
        await b.open()
        with pytest.raises(LogError, match="refused by the broker"):
            await a.claim(replace(STATE, next_seq=7))
        await b.claim(replace(STATE, next_seq=8, term=2, copy=1))
        await asyncio.gather(a.close(), b.close())

    asyncio.run(take_turns())
    state = read_root_state(KafkaTransport(bootstrap), "fenced", 0)
    assert state is not None
    assert (state.next_seq, state.term, state.copy) == (8, 2, 1)


def test_a_copy_whose_connections_were_lost_meanwhile_opens_all_the_same(bootstrap: str) -> None:
    """The broker closes connections that are idle, and may have been restarted."""
    ensure_topics(bootstrap, topics_for([], [QueryTopics("fenced", 1, 1, 1)]), WAIT_S_MAX)

    async def prepare_and_open() -> None:
        copy = copy_of(bootstrap)
        await copy.prepare()
        assert copy._producers._connected is not None
        for connection in copy._producers._connected.client._conns.values():
            connection.close()
        await copy.open()
        await copy.claim(replace(STATE, next_seq=9))
        await copy.close()

    asyncio.run(prepare_and_open())
    state = read_root_state(KafkaTransport(bootstrap), "fenced", 0)
    assert state is not None
    assert state.next_seq == 9


def test_the_end_of_a_process_is_read_by_those_who_listen(bootstrap: str) -> None:
    ensure_topics(bootstrap, topics_for([], []), WAIT_S_MAX)
    transport = KafkaTransport(bootstrap)
    listener = HeartbeatListener(transport).start()
    sender = HeartbeatSender(Cluster(bootstrap), "host/7", names=Names(), carries=True)
    beat = PartBeat(sender, "root/ended.0.a")
    beat.update(ready=True, detail={"term": 4, "answers": 1})
    sender.start()
    eventually(lambda: listener.ready("root/ended.0.a"))
    alive = listener.latest("root/ended.0.a")
    assert alive is not None
    reports = DeathReports(transport, listener)
    reports.connect()
    sender.stop()
    reports.report("host/7", ["root/ended.0.a"], alive.pid)
    eventually(lambda: (listener.latest("root/ended.0.a") or alive).is_dead)
    dead = listener.latest("root/ended.0.a")
    assert dead is not None
    assert (dead.ready, dead.detail["term"], dead.detail["answers"]) == (False, 4, 1)
    listener.stop()
