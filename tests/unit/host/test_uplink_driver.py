"""The driver over an uplink's session: it reads one Kafka and writes to another, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contracts.transport import no_failure
from tests.support.live_consumer import hand_over
from tests.support.memory import MemoryBroker
from tests.support.uplinks import pieces_of
from tests.unit.deployment.test_sites import FILE, parsed
from tests.unit.host.test_driver_of_roots import NoPeers, until

from slackwater.codec.pane_records import decode_merged, encode_merged
from slackwater.host import uplink
from slackwater.host.driven import Driven
from slackwater.host.driver import Driver
from slackwater.host.wake_signal import WakeSignal
from slackwater.model.errors import UsageError
from slackwater.model.records import Gap
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry

SITE, CENTRE = ("sw.merged.q.0", 0), ("sw.merged.q.0", 2)
START_US = 50_000_000
MOVED = FILE.replace("kafka.centre", "kafka.moved")
LOST = (Gap("c", 3),)


def definition(site: str | None = None, start_us: int = START_US) -> QueryDefinition:
    """Return the definition of q at the centre, or at a site."""
    view = parsed(site=site)
    return QueryDefinition("q", 0, start_us, 250_000, view.queries["q"], deployment=view)


class Linked:
    """The uplink ``a`` of site west, which is child 2 at the centre."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at_centre: QueryDefinition) -> None:
        self.site, self.centre = MemoryBroker(), MemoryBroker()
        self.site.create_topic(SITE[0])
        self.centre.create_topic(CENTRE[0], 3)
        self.centre.create_topic("sw.registry")
        Registry(self.centre).publish_queries(at_centre)
        monkeypatch.setattr(uplink, "KafkaTransport", self._reach)
        monkeypatch.setattr(uplink, "_writer", lambda centre, fatal: centre.writer(fatal))
        known: Any = SimpleNamespace(
            present_query=lambda _: definition("west"), deployment=parsed(MOVED, "west")
        )
        site: Any = self.site
        self.fragment = uplink.make("q.0.a", known, site)
        others: Any = NoPeers()
        self.others, self.turns = others, WakeSignal()
        assert self.fragment.write is not None
        self.driven = Driven(
            self.fragment.session, self.site, others, others, end_timeout_us=25_000,
            wake=self.turns.wake, write=self.fragment.write, centre=self.fragment.centre,
        )  # fmt: skip
        self.driver = Driver(self.turns, SystemClock())
        self.panes = 0

    def _reach(self, cluster: Cluster, _: object) -> MemoryBroker:
        moved = "that of the file, not the one that was registered"
        assert cluster.bootstrap == "kafka.moved:9092", moved
        return self.centre

    async def start(self) -> asyncio.Task[None]:
        await self.driven.start()
        self.driver.add(self.driven)
        return asyncio.create_task(self.driver.run())

    def merge(self, **of_pane: Any) -> None:
        """A merger writes the next pane, and the live consumer reads it."""
        (record,) = pieces_of(self.panes * 100, self.panes * 100 + 100, 5, **of_pane)
        self.site.writer(no_failure).append(*SITE, encode_merged(record))
        hand_over(self.driven, SITE, self.panes, encode_merged(record))
        self.panes += 1

    def arrived(self) -> list[tuple[int, int, tuple[Gap, ...]]]:
        """Return child, start and loss of what the centre has."""
        found = [decode_merged(raw.value) for raw in read_to_end(self.centre, CENTRE)]
        return [(of.pane.ref.child, of.start, of.gap) for of in found]

    @property
    def reported(self) -> dict[str, int]:
        return self.others.reported[-1].get("detail", {}) if self.others.reported else {}


@pytest.fixture(name="make")
def _make(monkeypatch: pytest.MonkeyPatch) -> Callable[[QueryDefinition], Linked]:
    return lambda at_centre: Linked(monkeypatch, at_centre)


async def test_panes_are_in_the_centres_log_under_the_number_of_the_child(make: Any) -> None:
    linked = make(definition())
    task = await linked.start()
    linked.merge()  # the centre has not answered yet, so a catch-up reader reads it later
    await until(lambda: len(linked.arrived()) == 1, task)
    linked.merge(gap=LOST)
    await until(lambda: linked.reported.get("sent.0.0") == 2, task)
    assert linked.arrived() == [(2, 0, ()), (2, 100, LOST)]
    for raw in read_to_end(linked.centre, CENTRE):
        record = decode_merged(raw.value)
        assert raw.value == encode_merged(record, packed=True) != encode_merged(record)
    assert linked.reported["has_to.0.0"] == 200

    linked.centre.go_away()
    for _ in range(5):
        linked.merge()
    await until(lambda: linked.reported["unsent"] == 5, task)
    assert linked.reported["sent.0.0"] == 2, "nothing has arrived"
    linked.centre.come_back()
    await until(lambda: linked.reported["sent.0.0"] == 7, task)
    assert [start for _, start, _ in linked.arrived()] == [*range(0, 700, 100)]
    task.cancel()


async def test_a_query_that_starts_earlier_at_the_centre_gets_nothing(make: Any) -> None:
    """The centre would wait for panes that the site does not have."""
    linked = make(definition(start_us=START_US - 10_000_000))
    task = await linked.start()
    linked.merge()  # the centre has not answered yet, so a catch-up reader reads it later
    problem = "it starts earlier there"
    await until(lambda: problem in problems(linked), task)
    assert linked.arrived() == []
    assert linked.reported.get("linked", 0) == 0
    task.cancel()


async def test_a_centre_that_was_registered_anew_gets_what_the_site_has(make: Any) -> None:
    linked = make(definition(start_us=START_US + 10_000_000))
    task = await linked.start()
    linked.merge()
    await until(lambda: len(linked.arrived()) == 1, task)
    task.cancel()


def test_panes_that_do_not_fit_are_not_sent() -> None:
    """Only the panes of a site that has begun again behind its own may begin later."""
    site, later = definition("west"), 10_000_000
    why = uplink._other_than(site)
    assert why(definition()) == why(definition(start_us=START_US + later)) == ""
    within = definition(start_us=START_US + later // 2)
    for other in (within, replace(definition(), w_us=500_000)):
        assert "it has other panes there" in why(other)
    lost = replace(site, e0_us=START_US + later, lost_until_us=START_US + 2 * later)
    assert uplink._other_than(lost)(definition()) == ""
    assert uplink._other_than(replace(lost, lost_until_us=None))(definition()) != ""


def problems(linked: Linked) -> str:
    session: Any = linked.fragment.session
    problem: str = session._centre.problem
    return problem


def test_only_a_query_at_a_site_has_an_uplink() -> None:
    plain = replace(definition("west"), spec=replace(definition("west").spec, uplink=None))
    for found, why in (
        (plain, "is at no site"),
        (replace(definition("west"), state="deleted"), "has been deleted"),
    ):
        known: Any = SimpleNamespace(present_query=lambda _, found=found: found)
        site: Any = MemoryBroker()
        with pytest.raises(UsageError, match=why):
            uplink.make("q.0.a", known, site)
