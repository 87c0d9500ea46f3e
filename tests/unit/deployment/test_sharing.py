"""Queries over the same sources read the same children (decision 93)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.machine.test_layout import LAUNCH, query, stream
from tests.unit.registration.test_truncation import A_STABLE, at, root

from slackwater.deployment.fragments import placed, process_names, stages, without_queries
from slackwater.deployment.sharing import (
    EDGES_MAX,
    readers_of,
    share,
    share_applied,
    why_not_joined,
    without_sharing,
)
from slackwater.exporter.queries import fragments_to_run
from slackwater.machine.layout import fragment_specs
from slackwater.machine.plan import PlannedLoad, plan
from slackwater.model.deployment import Deployment, QuerySpec, TopicSpec, WindowSpec
from slackwater.model.errors import UsageError
from slackwater.model.names import Names, OrdererName
from slackwater.model.records import LogState, OrdererState, RootState
from slackwater.primitives.windows import Grid, window_edges
from slackwater.registration.topics import topic_specs
from slackwater.registration.truncation import not_needed
from slackwater.rehearsal.plan import _on_shared_children as on_shared_children
from slackwater.rehearsal.plan import parse_fault
from slackwater.runtime.logs.topics import topics_for
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater_spark.queries import fragment_of, readers_in

SECOND_US = 1_000_000
STREAMS = {name: stream(name) for name in ("s1", "s2")}


def windowed(name: str, size_us: int, slide_us: int | None = None, **more: Any) -> QuerySpec:
    window = WindowSpec(size_us, slide_us or size_us)
    return replace(query(name, "s1", "s2"), window=window, **more)


def deployed(*queries: QuerySpec) -> Deployment:
    return Deployment("wall", STREAMS, {q.name: q for q in queries})


def children(deployment: Deployment) -> dict[str, str]:
    return {name: query.child_query for name, query in deployment.queries.items()}


MINUTE = windowed("minute", 60 * SECOND_US)
HOUR = windowed("hour", 3600 * SECOND_US, 60 * SECOND_US, aggregate=("avg", "max"))
SHARED = share(deployed(MINUTE, HOUR))


def test_a_registered_query_keeps_its_one_copy_and_no_other_one() -> None:
    """One was the default of earlier versions; a file with fewer copies is another definition."""
    one, two = (replace(MINUTE, copies=copies) for copies in (1, 2))
    assert share(deployed(two), {"minute": one}).queries["minute"].copies == 1
    assert share(deployed(one), {"minute": two}).queries["minute"].copies == 1
    assert share(deployed(two), {"minute": two}).queries["minute"].copies == 2
    assert share(deployed(two)).queries["minute"].copies == 2


def test_queries_that_differ_in_windows_and_aggregates_share() -> None:
    assert children(SHARED) == {"minute": "minute", "hour": "minute"}
    windows = (MINUTE.window, HOUR.window)
    assert all(query.cut_windows == windows for query in SHARED.queries.values())
    assert all(query.shared_by == ("minute", "hour") for query in SHARED.queries.values())
    assert SHARED.queries["minute"].has_children
    assert not SHARED.queries["hour"].has_children
    assert readers_of("minute", SHARED.queries.values()) == tuple(SHARED.queries.values())


@pytest.mark.parametrize(
    "other",
    [
        replace(HOUR, sources=("s2", "s1")),
        replace(HOUR, sources=("s1",)),
        replace(HOUR, where="temperature > 0"),
        replace(HOUR, select=(("f", "temperature * 2"),)),
        replace(HOUR, bound_us=3 * SECOND_US),
        replace(HOUR, margin_us=60_000),
        replace(HOUR, failure_policy="delay"),
        replace(HOUR, replicas=1),
        replace(HOUR, children=2),
        replace(HOUR, parts=2),
        replace(HOUR, window=None, aggregate=()),
        replace(HOUR, window=WindowSpec(700_000, 700_000)),
    ],
    ids=str,
)
def test_queries_that_need_other_children_do_not_share(other: QuerySpec) -> None:
    made = share(deployed(MINUTE, other))
    assert children(made) == {"minute": "minute", "hour": "hour"}
    assert not any(query.cut_windows or query.shared_by for query in made.queries.values())


def test_queries_with_other_groups_of_logs_do_not_share() -> None:
    one = (("a", ("s1",)), ("b", ("s2",)))
    other = (("a", ("s2",)), ("b", ("s1",)))
    groups = {"m": one, "n": one, "o": other}
    queries = [
        windowed(name, 60 * SECOND_US, children=2, child_groups=of) for name, of in groups.items()
    ]
    assert children(share(deployed(*queries))) == {"m": "m", "n": "m", "o": "o"}


def test_a_query_that_another_one_reads_has_an_earlier_deadline_and_shares_with_none() -> None:
    reader = replace(query("late", "hour"), aggregate=("max",))
    made = share(deployed(MINUTE, HOUR, reader))
    assert children(made) == {"minute": "minute", "hour": "hour", "late": "late"}


def test_rows_share_with_none() -> None:
    rows = [replace(query(name, "s1"), window=None, aggregate=()) for name in ("one", "two")]
    assert children(share(deployed(*rows))) == {"one": "one", "two": "two"}


def test_windows_that_would_add_too_many_cut_points_get_other_children() -> None:
    sizes = [3 * SECOND_US, 5 * SECOND_US, 7 * SECOND_US, 11 * SECOND_US, 15 * SECOND_US]
    made = share(deployed(*(windowed(f"q{i}", size) for i, size in enumerate(sizes))))
    found = children(made)
    assert found == {"q0": "q0", "q1": "q0", "q2": "q0", "q3": "q3", "q4": "q0"}
    for each in made.queries.values():
        assert len(window_edges(each.cut_windows)) <= EDGES_MAX


def test_registered_queries_keep_their_children_and_later_ones_share_among_themselves() -> None:
    day, week = windowed("day", 86_400 * SECOND_US), windowed("week", 7 * 86_400 * SECOND_US)
    of_before = {"minute": MINUTE, "hour": HOUR}  # as registered by an earlier version
    made = share(deployed(MINUTE, HOUR, day, week), of_before)
    assert children(made) == {"minute": "minute", "hour": "hour", "day": "day", "week": "day"}
    assert made.queries["minute"] == MINUTE
    again = share(deployed(MINUTE, HOUR, day, week), made.queries)
    assert again == made
    assert share(share(deployed(MINUTE, HOUR))) == SHARED, "sharing twice changes nothing"


def test_a_query_whose_namesake_has_left_the_file_keeps_its_children() -> None:
    left = share(deployed(HOUR), SHARED.queries)
    assert children(left) == {"hour": "minute"}
    assert "orderer/minute.0.a" in process_names(left)


def test_a_definition_has_what_it_shares_and_one_that_shares_nothing_is_as_before() -> None:
    for each in SHARED.queries.values():
        assert QuerySpec.from_json(each.to_json()) == each
    assert QuerySpec.from_json(MINUTE.to_json()) == MINUTE
    assert not {"children_of", "cut_windows", "shared_by"} & MINUTE.to_json().keys()
    definition = QueryDefinition("hour", 0, 0, 2_500_000, SHARED.queries["hour"])
    assert QueryDefinition.from_json(definition.to_json()) == definition


def test_all_that_share_have_the_same_cut_points_at_any_speed() -> None:
    odd = [windowed("a", 3 * SECOND_US), windowed("b", 5 * SECOND_US, 2 * SECOND_US)]
    made = share(deployed(*odd)).queries.values()
    for w_us in (100_000, 250_000, 2_500_000, 7_000_000):
        grids = [QueryDefinition(q.name, 0, 0, w_us, q).grid for q in made]
        first, second = (grid.cuts(0, 60 * SECOND_US).tolist() for grid in grids)
        assert first == second
        for each in odd:
            assert set(Grid(w_us, each.window).cuts(0, 60 * SECOND_US).tolist()) <= set(first)
        starts = range(0, 60 * SECOND_US, 500_000)
        assert [g.count(0, e) for g in grids for e in starts] == [
            sum(cut < e for cut in first) for _ in grids for e in starts
        ]


def test_what_is_shared_runs_once_and_each_query_has_roots() -> None:
    names = process_names(SHARED, broker=False)
    assert [n for n in names if n.startswith(("orderer", "root"))] == [
        "orderer/minute.0.a",
        "orderer/minute.0.b",
        "root/minute.0",
        "root/hour.0",
    ]
    specs = {spec.name: spec for spec in fragment_specs(SHARED, LAUNCH)}
    assert "minute.0.a" in specs["aggregator/0"].command
    assert not any("hour.0." in argument for argument in specs["aggregator/0"].command)
    assert [*placed("host", SHARED)] == ["host/0", "host/1"]
    assert stages(SHARED.queries["hour"])[1] == ("orderer/minute.0.a", "orderer/minute.0.b")
    assert stages(SHARED.queries["hour"])[-1] == ("root/hour.0",)


def test_what_is_shared_has_topics_once() -> None:
    topics = {spec.name for spec in topic_specs(SHARED, {})}
    unshared = {spec.name for spec in topic_specs(deployed(MINUTE, HOUR), {})}
    assert unshared - topics == {"sw.ordered.hour.0", "sw.deltas.hour.0"}
    assert topics <= unshared


def test_a_plan_counts_what_is_shared_once() -> None:
    found, unshared = (
        plan(deployed(MINUTE, other), PlannedLoad()) for other in (HOUR, replace(HOUR, margin_us=1))
    )
    assert found.cores < unshared.cores
    assert found.topics == unshared.topics - 2
    by_name = {process.name: process.fragments for process in found.processes}
    assert by_name["aggregator/0"] == 1


def test_a_fault_on_an_orderer_that_is_shared_hits_the_one_that_runs() -> None:
    for text, target in [
        ("at=1s kill orderer/hour.0.a", "orderer/minute.0.a"),
        ("at=1s kill orderer/hour", "orderer/minute"),
        ("at=1s kill root/hour.0", "root/hour.0"),
        ("at=1s kill orderer/minute.0.b", "orderer/minute.0.b"),
        ("at=1s kill orderer/none", "orderer/none"),
    ]:
        assert on_shared_children(parse_fault(text), SHARED).target == target


def test_logs_are_kept_for_the_slowest_of_all_roots_that_read_them() -> None:
    slow = LogState(0, 0, 0, stable=at(20), live=at(25), contiguous_seq=30)
    readers = [replace(q, replicas=1) for q in SHARED.queries.values()]
    fast = replace(root(0, A_STABLE), fragment="root/minute.0")
    behind = replace(root(0, slow), fragment="root/hour.0")
    own = OrdererState("orderer/minute.0.a", 0, 0, 0, 35, 35, ())
    states: dict[str, OrdererState | RootState] = {s.fragment: s for s in (fast, behind, own)}
    assert not_needed(readers, states) == {
        ("sw.deltas.minute.0", 0): 20,
        ("sw.ordered.minute.0", 0): 30,
    }
    del states["root/hour.0"]
    assert not_needed(readers, states) == {}, "a root without a state record needs all logs"


def registry_of(*queries: QuerySpec) -> Registry:
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    registry = Registry(broker)
    registry.publish_queries(*(QueryDefinition(q.name, 0, 0, 1, q) for q in queries))
    return registry


def test_an_aggregator_makes_the_figures_of_all_readers_for_all_their_roots() -> None:
    registry = registry_of(*SHARED.queries.values())
    found = fragment_of(OrdererName("minute", 0, 0), registry, Names())
    assert readers_in(SHARED, registry)("minute") == ["minute", "hour"]
    assert found.route.figures == ("count", "sum", "max")
    assert found.route.delta_topics == ("sw.deltas.minute.0",)
    with pytest.raises(UsageError, match="query hour reads the children of query minute"):
        fragment_of(OrdererName("hour", 0, 0), registry, Names())


def test_figures_that_only_a_query_outside_the_file_needs_are_made_too() -> None:
    """Its root reads them when the query returns; an absent maximum would be a wrong one."""
    registry = registry_of(*SHARED.queries.values())
    found = fragment_of(OrdererName("minute", 0, 0), registry, Names())
    assert readers_in(deployed(MINUTE), registry)("minute") == ["minute"]
    assert "max" in found.route.figures


@pytest.mark.timeout(20)
@pytest.mark.parametrize("made", [SHARED, deployed(MINUTE)], ids=["shared", "of its own"])
def test_a_query_that_was_added_to_the_file_is_not_waited_for(made: Deployment) -> None:
    """A restarted process reads the new file, and the query may never be registered."""
    registry = registry_of(*made.queries.values())
    file = [*made.queries.values(), windowed("added", 60 * SECOND_US)]
    assert registry.wait_for_readers("minute", file) == list(made.queries.values())


@pytest.mark.timeout(20)
def test_a_reader_that_is_about_to_be_registered_is_waited_for() -> None:
    minute, hour = SHARED.queries.values()
    registry = registry_of(minute)
    found: list[list[QuerySpec]] = []
    waiting = threading.Thread(
        target=lambda: found.append(registry.wait_for_readers("minute", [minute, hour]))
    )
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive()
    registry.publish_queries(QueryDefinition("hour", 0, 0, 1, hour))
    waiting.join()
    assert found == [[minute, hour]]


def test_the_exporter_expects_the_orderers_of_what_is_registered() -> None:
    """A query without a start for a long time hides no other query's orderers."""
    file = deployed(MINUTE, HOUR, windowed("later", 60 * SECOND_US, margin_us=60_000))
    expected = fragments_to_run(file, {})
    assert not any(name.startswith("orderer/") for name in expected)
    assert "root/later.0" in expected
    found = {q.name: QueryDefinition(q.name, 0, 0, 1, q) for q in share(file).queries.values()}
    expected = fragments_to_run(file, {name: found[name] for name in ("minute", "hour")})
    orderers = {name for name in expected if name.startswith("orderer/")}
    assert orderers == {"orderer/minute.0.a", "orderer/minute.0.b"}
    expected = fragments_to_run(file, found)
    assert "orderer/later.0.a" in expected
    assert "orderer/hour.0.a" not in expected


def test_a_query_that_is_not_in_the_file_is_its_own_reader() -> None:
    """The roots of a fragment may run elsewhere; it continues at their positions (rule-26)."""
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    registry = Registry(broker)
    registry.publish_queries(QueryDefinition("minute", 0, 0, 1, MINUTE))
    assert registry.wait_for_readers("minute", [replace(HOUR, name="other")]) == [MINUTE]


# --- queries that are applied while others run ---------------------------------------------------

RUNNING = share(deployed(HOUR))
"""It runs alone, with average and maximum."""


def applied(
    query: QuerySpec,
    running: Deployment = RUNNING,
    start: int | None = 7,
    started: Mapping[str, int] = MappingProxyType({"hour": 7}),
) -> QuerySpec:
    of, order = share_applied(deployed(query), {query.name: start}, running, started)
    assert order == [query.name]
    return of.queries[query.name]


def test_a_query_that_is_applied_joins_the_children_of_a_running_one() -> None:
    joined = applied(windowed("day", 86_400 * SECOND_US))
    assert (joined.child_query, joined.shared_by) == ("hour", ())
    both = replace(RUNNING, queries={**RUNNING.queries, "day": joined})
    assert why_not_joined(joined, deployed(joined), RUNNING) == ""
    grids = [QueryDefinition(q.name, 0, 0, 250_000, q).grid for q in both.queries.values()]
    assert len({tuple(grid.cuts(0, 10 * SECOND_US).tolist()) for grid in grids}) == 1
    later = applied(windowed("week", 7 * 86_400 * SECOND_US), without_queries(both, ["hour"]))
    assert later.child_query == "hour", "its namesake has been deleted"
    assert QuerySpec.from_json(joined.to_json()) == joined


def does_not_join(query: QuerySpec, running: Deployment = RUNNING, start: int | None = 7) -> None:
    made = applied(query, running, start)
    assert made.child_query == query.name
    assert made.child_aggregates, "others may join its children"
    if running.queries and start == 7:
        forced = replace(made, children_of="hour", cut_windows=(cast(WindowSpec, HOUR.window),))
        assert why_not_joined(forced, deployed(query), running)


DAY = windowed("day", 86_400 * SECOND_US)


def test_a_query_whose_windows_have_other_cut_points_does_not_join() -> None:
    does_not_join(windowed("day", 700_000))


def test_a_query_whose_figures_the_deltas_lack_does_not_join() -> None:
    does_not_join(replace(DAY, aggregate=("min",)))


@pytest.mark.parametrize(
    ("query", "running", "start"),
    [
        pytest.param(replace(DAY, where="x > 0"), RUNNING, 7, id="where"),
        pytest.param(replace(DAY, parts=2), RUNNING, 7, id="parts"),
        pytest.param(DAY, deployed(), 7, id="another time"),
        pytest.param(DAY, RUNNING, 6, id="it begins later"),
        pytest.param(DAY, RUNNING, None, id="beginning"),
        pytest.param(DAY, deployed(HOUR), 7, id="earlier version"),
        pytest.param(DAY, replace(RUNNING, clock="data"), 7, id="history"),
        pytest.param(
            DAY,
            replace(RUNNING, streams={**STREAMS, "s1": replace(STREAMS["s1"], disorder_us=7)}),
            7,
            id="stream",
        ),
    ],
)
def test_a_query_joins_only_what_it_can_read(
    query: QuerySpec, running: Deployment, start: int | None
) -> None:
    does_not_join(query, running, start)


def test_children_with_fixed_partitions_and_over_queries_are_not_joined() -> None:
    topic = TopicSpec("readings", partitions="fixed")
    streams = {**STREAMS, "s1": replace(STREAMS["s1"], topic=topic)}
    fixed = replace(deployed(DAY), streams=streams)
    for of in (fixed, deployed(replace(DAY, sources=("hour",)), HOUR)):
        made, _ = share_applied(of, {"day": 0}, replace(RUNNING, streams=of.streams), {})
        assert made.queries["day"] == without_sharing(of.queries["day"])


def test_queries_that_are_applied_together_share_the_children_of_the_first_to_start() -> None:
    reader = replace(query("reader", "hour"), aggregate=("max",), bound_us=60 * SECOND_US)
    file = deployed(HOUR, reader, MINUTE)
    starts = {"hour": 3600, "reader": 60, "minute": 60}
    made, order = share_applied(file, starts, deployed(), {})
    assert order == ["minute", "hour", "reader"]
    assert children(made) == {"hour": "minute", "reader": "reader", "minute": "minute"}
    minute, hour = made.queries["minute"], made.queries["hour"]
    running = replace(made, queries={"minute": minute})
    assert why_not_joined(hour, made, running) == "", "the deltas have its figures"
    assert why_not_joined(hour, made, deployed()) == "no query runs that reads them"
    registry = registry_of(minute)
    figures = fragment_of(OrdererName("minute", 0, 0), registry, Names()).route.figures
    assert "max" in figures, "also before hour is registered"


def test_queries_of_a_history_that_are_applied_together_have_children_of_their_own() -> None:
    """No controller would let one read the other's: `why_not_joined`."""
    file = replace(deployed(HOUR, MINUTE), clock="data")
    made, order = share_applied(file, {"hour": None, "minute": None}, deployed(), {})
    assert order == ["hour", "minute"]
    assert children(made) == {"hour": "hour", "minute": "minute"}
    running = replace(made, queries={"minute": made.queries["minute"]})
    assert why_not_joined(replace(HOUR, children_of="minute"), made, running)


def test_readers_that_were_applied_at_run_time_are_found_beside_those_of_the_file() -> None:
    registry = registry_of(*SHARED.queries.values())
    joined = replace(applied(windowed("day", 86_400 * SECOND_US)), children_of="minute")
    later = QueryDefinition("day", 0, 0, 1, joined, deployment=deployed(joined))
    registry.publish_queries(later)
    file = [*SHARED.queries.values()]
    assert [q.name for q in registry.readers("minute", file)] == ["minute", "hour", "day"]
    assert [q.name for q in registry.readers("minute", ())] == ["day"]
    registry.publish_queries(replace(later, state="deleted"))
    assert [q.name for q in registry.readers("minute", ())] == ["minute"]
