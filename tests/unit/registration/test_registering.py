"""How a node registers queries: together, or each for itself, and after its proxies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.machine.test_layout import query, stream

from slackwater.codec.state_records import encode_root_state
from slackwater.control.applied import AppliedQuery, Start
from slackwater.control.control_state import Wanted
from slackwater.deployment.sharing import share, without_sharing
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import Deployment, QuerySpec, TopicSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import Position, RootState
from slackwater.primitives.eventclock import WallClock
from slackwater.registration import registering, registration
from slackwater.registration.registering import Registering
from slackwater.registration.registration import Registration
from slackwater.runtime.logs.topics import topics_for
from slackwater.runtime.service.registry import QueryDefinition, Registry


class World:
    """A registry in memory, and proxies whose heartbeats are counted as waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = MemoryBroker()
        for spec in topics_for([], []):
            self.broker.create_topic(spec.name, spec.partitions)
        Registry(self.broker).publish_clock(WallClock())
        monkeypatch.setattr(self.broker, "cluster", None, raising=False)
        monkeypatch.setattr(self.broker, "bootstrap", "kafka:9092", raising=False)
        monkeypatch.setattr(registration, "partition_counts", lambda _, topics: self.topics)
        known = {self.broker.names.registry: 1}
        monkeypatch.setattr(registering, "partition_counts", lambda _, topics: known | self.topics)
        monkeypatch.setattr(Registration, "make_topics", lambda _, **__: None)
        self.topics: dict[str, int] = {}
        self.waited_s: list[float] = []
        self.begun: list[list[str]] = []
        self.published = 0
        publish = Registry.publish_queries

        def count(registry: Registry, *queries: QueryDefinition) -> None:
            self.published += 1
            publish(registry, *queries)

        monkeypatch.setattr(Registry, "publish_queries", count)

    def registering(self, **options: Any) -> Registering:
        def wait_for(_holds: Callable[[object], bool], timeout_s: float) -> bool:
            self.waited_s.append(timeout_s)
            return True

        def begun(queries: Iterable[object]) -> None:
            self.begun.append(sorted(map(str, queries)))

        return Registering(
            cast(Any, self.broker),
            cast(Any, SimpleNamespace(wait_for=wait_for)),
            Path("d.yaml"),
            cast(Any, SimpleNamespace(read_by=lambda _: None)),
            cast(Any, SimpleNamespace(register=begun)),
            **options,
        )

    def all(self) -> dict[str, QueryDefinition]:
        return dict(Registry(self.broker).all_queries())


@pytest.fixture(name="world")
def _world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def deployment(*queries: QuerySpec, **topics: str) -> Deployment:
    streams = {
        name: replace(stream(name), topic=TopicSpec(topics[name]) if name in topics else None)
        for name in ("s1", "s2")
    }
    return Deployment("wall", streams, {each.name: each for each in queries})


async def carry_out(
    registering: Registering, of: Deployment, start: Start = 7_000_000
) -> tuple[frozenset[str], str]:
    applied = {name: AppliedQuery(name, of.connected(name), start) for name in of.queries}
    return await registering.carry_out(dict.fromkeys(applied, Wanted.RUNNING), applied, of)


async def test_new_queries_are_registered_together(world: World) -> None:
    both = deployment(query("q", "s1"), query("r", "s2"))
    done, why = await carry_out(world.registering(), both)
    assert (done, why, world.published) == (frozenset("qr"), "", 1)
    assert {q.e0_us for q in world.all().values()} == {7_000_000}
    assert all(q.awaits_begin and q.deployment is not None for q in world.all().values())


async def test_one_that_cannot_be_registered_does_not_delay_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = Registration._definition

    def refused(of: Registration, spec: QuerySpec, *begin: int) -> QueryDefinition:
        if spec.name == "q":
            raise EnvironmentProblem("query q had another window")
        return definition(of, spec, *begin)

    monkeypatch.setattr(Registration, "_definition", refused)
    made = world.registering()
    done, why = await carry_out(made, deployment(query("q", "s1"), query("r", "s2")))
    assert (done, why) == (frozenset("r"), "query q had another window")
    assert not made.awaits_readings, "it is repeated with the pauses of a failure"


async def test_a_registered_query_gets_topics_that_an_earlier_version_did_not_make(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = deployment(query("q", "s1"), query("r", "s2"))
    await carry_out(world.registering(), both)
    made: list[list[str]] = []
    is_away = True

    def make_topics(of: Registration, **_: object) -> None:
        made.append(sorted(of._deployment.queries))
        if is_away:
            raise EnvironmentProblem("no broker answers")

    monkeypatch.setattr(Registration, "make_topics", make_topics)
    later = world.registering()
    done, why = await carry_out(later, both)
    assert (done, why) == (frozenset("qr"), "no broker answers")
    is_away = False
    assert await carry_out(later, both) == (frozenset("qr"), "")
    assert await carry_out(later, both) == (frozenset("qr"), "")
    assert made == [["q", "r"], ["q", "r"]], "again after a failure, and once"


async def test_the_rules_with_which_up_starts_again_are_registered(world: World) -> None:
    """Its file has others now, or none: then the query still has to end what stands."""
    hot = AlertSpec("hot", when="x_avg > 1")
    first = replace(query("q", "s1"), alerts=(hot,))
    await carry_out(world.registering(), share(deployment(first)))
    registered = {name: q.spec for name, q in world.all().items()}
    for rules in ((replace(hot, windows=3),), (), ()):
        again = share(deployment(replace(first, alerts=rules)), registered)
        await carry_out(world.registering(), again)
        registered = {name: q.spec for name, q in world.all().items()}
        assert registered["q"].alerts == rules
        assert registered["q"].delivers
    assert world.published == 3, "as often as they changed, and at first"


async def test_one_whose_topic_is_missing_is_named_with_it(world: World) -> None:
    both = deployment(query("q", "s1"), query("r", "s2"), s1="readings")
    done, why = await carry_out(world.registering(), both)
    assert done == {"r"}
    assert "topic readings does not exist on kafka:9092" in why
    assert why.endswith("for query q")


def sharing(world: World) -> Deployment:
    """Two queries that share children, with topics."""
    both = share(deployment(query("q", "s1"), query("r", "s1")))
    assert both.queries["r"].child_query == "q"
    world.broker.create_topic("sw.deltas.q.0", 4)
    for name in both.queries:
        world.broker.create_topic(f"sw.state.{name}")
    return both


@pytest.mark.parametrize(("start", "started_us"), [("now", 7_000_000), (9_000_000, 9_000_000)])
async def test_queries_that_share_children_have_their_start_or_a_later_one(
    world: World, start: Start, started_us: int
) -> None:
    """Also if one of them is registered at a later attempt."""
    both = sharing(world)
    made = world.registering()
    r_alone = replace(both, queries={"r": both.queries["r"]})
    done, why = await carry_out(made, r_alone, start)
    assert not done, "it waits for the children"
    assert "the children of query q, which are not there any more" in why
    await carry_out(made, replace(both, queries={"q": both.queries["q"]}), 7_000_000)
    done, _ = await carry_out(made, both, start)
    assert done == {"q", "r"}
    assert {n: q.e0_us for n, q in world.all().items()} == {"q": 7_000_000, "r": started_us}


@pytest.mark.parametrize(
    ("stable_from", "moved_to"), [(12_000_000, ()), (8_000_000, (12_000_000,))]
)
async def test_a_query_that_joins_does_not_start_before_what_is_kept(
    world: World, stable_from: int, moved_to: tuple[int, ...]
) -> None:
    """Truncation has deleted deltas; q's root has answered up to 12 s (trace-50).

    Or it has answered less, and has heads from 12 s on (trace-62).
    """
    both = sharing(world)
    made = world.registering()
    await carry_out(made, replace(both, queries={"q": both.queries["q"]}), 7_000_000)
    writer = world.broker.writer(lambda _: None)
    writer.append("sw.deltas.q.0", 0, b"deleted")
    world.broker.delete_records({("sw.deltas.q.0", 0): 1})
    state = RootState("root/q.0", 1, 0, 0, stable_from, 12_000_000, (Position(0),), ())
    state = replace(state, moved_to=moved_to)
    writer.append("sw.state.q", 0, encode_root_state(state), b"root/q.0")
    done, why = await carry_out(made, both, 7_000_000)
    assert done == {"q"}
    assert "kept from 1970-01-01T00:00:12" in why
    assert "apply it again under another name" in why
    assert (await carry_out(made, both, 9_000_001))[0] == {"q"}, "not at a cut point"
    assert (await carry_out(made, both, 9_000_000))[0] == {"q", "r"}
    assert world.all()["r"].e0_us == 12_000_000, "its registration has taken so long"


async def test_a_query_does_not_join_children_that_nobody_reads(world: World) -> None:
    both = sharing(world)
    made = world.registering()
    await carry_out(made, replace(both, queries={"q": both.queries["q"]}), 7_000_000)
    await made.carry_out({"q": Wanted.DELETED}, {}, replace(both, queries={}))
    done, why = await carry_out(made, replace(both, queries={"r": both.queries["r"]}), 9_000_000)
    assert (done, "are not there any more" in why) == (frozenset(), True)


async def test_a_query_that_is_registered_with_other_children_is_named(world: World) -> None:
    """Two halves of a split network have accepted it, one of them when q had been deleted there."""
    both = sharing(world)
    made = world.registering()
    await carry_out(made, both, 7_000_000)
    own = without_sharing(both.queries["r"])
    done, why = await carry_out(made, replace(both, queries={**both.queries, "r": own}), 7_000_000)
    assert done == {"q"}
    assert "with the children of query q, and recorded with those of query r: delete it" in why
    assert not made.awaits_readings
    assert await made.carry_out({"r": Wanted.DELETED}, {}, both) == (frozenset("r"), "")


async def test_a_query_of_a_file_stands_without_its_streams(world: World) -> None:
    made = world.registering(declared={"q"}, input_partitions=1)
    await carry_out(made, deployment(query("q", "s1"), query("r", "s2")))
    found = world.all()
    assert found["q"].deployment is None
    assert found["r"].deployment is not None
    assert world.begun == [["q", "r"]], "both await their begins"


async def test_a_rehearsal_has_wider_buckets_and_awaits_no_begin(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def published(_: Registration) -> None:
        raise AssertionError("its clock is published when all are ready")

    monkeypatch.setattr(Registration, "publish_clock", published)
    await carry_out(world.registering(speed=60.0), deployment(query("q", "s1")))
    (found,) = world.all().values()
    assert (found.w_us, found.awaits_begin) == (15_000_000, False)


async def test_one_that_begins_with_a_first_reading_waits_for_its_proxies_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, begins = 100.0, [None, 5_000_000]
    monkeypatch.setattr("slackwater.registration.registering.time.monotonic", lambda: now_s)
    monkeypatch.setattr("slackwater.registration.starts.beginning", lambda *_: begins.pop(0))
    made, of = world.registering(), deployment(query("q", "s1"))
    done, why = await carry_out(made, of, "beginning")
    assert (done, why, made.awaits_readings) == (frozenset(), "", True)
    assert world.waited_s == [5.0]
    now_s += 5.0
    done, _ = await carry_out(made, of, "beginning")
    assert (done, made.awaits_readings) == (frozenset("q"), False)
    assert world.waited_s == [5.0], "they have had their time"
    assert world.all()["q"].e0_us == 5_000_000
