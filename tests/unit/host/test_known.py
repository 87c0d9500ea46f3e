"""What a host's fragments share of the registry, and what the last of them releases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.memory import MemoryBroker
from tests.support.waiting import eventually
from tests.unit.machine.test_layout import query, stream

from slackwater.host import orderer, root
from slackwater.host.known import RegistryView
from slackwater.model.deployment import Deployment
from slackwater.model.errors import UsageError
from slackwater.primitives.eventclock import WallClock
from slackwater.primitives.keyparts import KEY_HASHES, KeyHash
from slackwater.runtime.logs.topics import topics_for
from slackwater.runtime.logs.transport import NoAnswerError
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry

Q = query("q", "s")
FILE = Deployment("wall", {"s": stream("s")}, {"q": Q})


def definition(state: QueryState = "running") -> QueryDefinition:
    return QueryDefinition("q", 0, 0, Q.bucket_us(), Q, state=state)


@pytest.fixture
def registry() -> Registry:
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    registry = Registry(broker)
    registry.publish_queries(definition())
    return registry


def clocks() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "clock"}


@pytest.fixture
def no_more_clocks() -> Callable[[], bool]:
    """Return whether all threads have ended that have waited for a clock since the begin."""
    before = clocks()
    return lambda: not clocks() - before


def test_a_root_that_starts_again_in_the_same_host_sees_that_its_query_was_deleted(
    registry: Registry,
) -> None:
    view = RegistryView(registry, FILE)
    assert view.present_query("q").state == "running"
    registry.publish_queries(definition("deleted"))
    assert view.present_query("q").state == "deleted"
    with pytest.raises(UsageError, match="query q has been deleted"):
        root.make("q.0", view, cast(Any, None))


def test_a_number_of_the_record_needs_no_state_record(registry: Registry) -> None:
    """A root that starts reads its state topic several times; on a node not for its number."""
    placements = SimpleNamespace(of=lambda process: {"root/q.0": 7}[process])
    view = RegistryView(registry, FILE, cast(Any, placements))
    assert view.placement("root/q.0", lambda: pytest.fail("it is not read")) == 7
    number = RegistryView(registry, FILE).placement("root/q.0", lambda: 3)
    assert number > 3


def test_the_last_fragment_of_a_query_ends_the_wait_for_the_clock(
    registry: Registry, no_more_clocks: Callable[[], bool]
) -> None:
    view = RegistryView(registry, FILE)
    one, other = view.normal_time(Q), view.normal_time(Q)
    assert one is other
    view.leave_time("q", one)
    registry.publish_clock(WallClock())
    eventually(lambda: other.of(0) is not None)
    view.leave_time("q", other)
    eventually(no_more_clocks)
    assert view.normal_time(Q) is not one


@pytest.mark.parametrize("clock", ["wall", "data"])
def test_a_fragment_that_ends_before_the_clock_is_published_leaves_no_thread(
    registry: Registry, no_more_clocks: Callable[[], bool], clock: Any
) -> None:
    view = RegistryView(registry, replace(FILE, clock=clock))
    one, other = view.normal_time(Q), view.normal_time(Q)
    assert (one is other) is (clock == "wall")
    assert not no_more_clocks()
    for time in (one, other):
        view.leave_time("q", time)
    eventually(no_more_clocks)


def test_an_orderer_that_cannot_be_made_leaves_nothing(
    registry: Registry, no_more_clocks: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made again after each failure."""
    view = RegistryView(registry, FILE)

    def no_answer(_: str) -> None:
        raise NoAnswerError("no answer in the time allowed")

    monkeypatch.setattr(view, "readers", no_answer)
    with pytest.raises(NoAnswerError):
        orderer.make("q.0.a", view, cast(Any, SimpleNamespace(names=None)))
    eventually(no_more_clocks)
    with pytest.raises(KeyError):
        view.leave_buckets(orderer.bucket_contents_key(FILE, Q, [orderer.SourceInput("s", "s")]))


@pytest.mark.parametrize("key_hash", [None, *KEY_HASHES])
def test_a_root_of_rows_has_the_hash_of_its_definition(
    key_hash: KeyHash | None,
) -> None:
    """One of an earlier build has CRC-32."""
    rows = replace(query("q", "s", parts=3), window=None, aggregate=())
    of = Deployment("wall", {"s": stream("s")}, {"q": rows})
    defined = replace(definition(), spec=rows, key_hash=key_hash)
    contents = root._of_rows(of, defined, 2)["contents"]
    assert contents.keywords == {"part": 2, "parts": 3, "key_hash": key_hash or "crc32"}
