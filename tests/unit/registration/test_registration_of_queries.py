"""Registration: topics not yet visible at a broker, and starts of queries that share children."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.machine.test_layout import query, stream

from slackwater.codec.source_records import encode_source
from slackwater.codec.state_records import encode_root_state
from slackwater.deployment.sharing import share
from slackwater.model.deployment import (
    Clock,
    Deployment,
    HttpInputSpec,
    QuerySpec,
    TopicSpec,
    WindowSpec,
)
from slackwater.model.errors import DeploymentError, EnvironmentProblem
from slackwater.model.records import Kind, Position, RootState, SourceRecord
from slackwater.primitives.eventclock import DataClock, EventClock, WallClock
from slackwater.registration import registration, starts
from slackwater.registration.registration import Registration
from slackwater.runtime.logs.topics import QueryTopics, topics_for
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry


def register(of: Registration, names: list[str], event_clock: EventClock) -> list[str]:
    """Register queries of a file whose start is known; return the names of the others."""
    found = of.define(dict.fromkeys(names, "beginning"), event_clock, declared=names)
    Registry(of._transport).publish_queries(*found)
    return [name for name in names if name not in {each.name for each in found}]


class OtherCluster:
    """Stands for a transport of which only the address is used."""

    cluster = bootstrap = "kafka:9092"


def made() -> Registration:
    streams = {"s1": replace(stream("s1"), topic=TopicSpec("readings"))}
    deployment = Deployment("wall", streams, {"q": query("q", "s1")})
    return Registration(cast(Any, OtherCluster()), deployment, Path("d.yaml"))


def test_a_topic_that_was_just_made_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, int]] = [{}, {"readings": 3}]
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: shown.pop(0))
    assert made().partitions_of == {"s1": 3}
    assert not shown


def test_one_that_does_not_appear_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {})
    monkeypatch.setattr(registration, "APPEARS_S_MAX", 0.2)
    with pytest.raises(EnvironmentProblem, match=r"topic readings of d\.yaml does not exist on"):
        _ = made().partitions_of


def test_queries_that_share_begin_together_though_data_arrives_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the children would begin elsewhere than one of the roots that read them."""
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    queries = {name: query(name, "s1") for name in ("q", "r")}
    deployment = share(Deployment("data", {"s1": stream("s1")}, queries))
    assert deployment.queries["r"].child_query == "q"
    found = [None, 7_000_000, 5_000_000]  # of q; then a reading arrives, then an older one
    monkeypatch.setattr(starts, "beginning", lambda *of: found.pop(0))
    monkeypatch.setattr(starts, "history_speed", lambda *of: 1)
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {})
    monkeypatch.setattr(broker, "cluster", None, raising=False)
    wanted = Registration(cast(Any, broker), deployment, Path("d.yaml"))
    assert register(wanted, ["q", "r"], DataClock()) == ["q", "r"]
    assert register(wanted, ["q", "r"], DataClock()) == []
    begun = Registry(broker).queries()
    assert begun["q"].e0_us == begun["r"].e0_us


@pytest.mark.parametrize(("clock", "w_us"), [(DataClock(), 3_600_000_000), (WallClock(), 250_000)])
def test_a_history_has_wider_buckets_the_same_for_queries_that_share(
    monkeypatch: pytest.MonkeyPatch, clock: DataClock | WallClock, w_us: int
) -> None:
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    queries = {name: query(name, "s1") for name in ("q", "r")}
    deployment = share(Deployment("data", {"s1": stream("s1")}, queries))
    monkeypatch.setattr(starts, "beginning", lambda *of: 7_000_000)
    speeds = [14_400, 4]  # readings arrive between two looks
    monkeypatch.setattr(starts, "history_speed", lambda *of: speeds.pop(0))
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {})
    monkeypatch.setattr(broker, "cluster", None, raising=False)
    register(Registration(cast(Any, broker), deployment, Path("d.yaml")), ["q", "r"], clock)
    assert {each.w_us for each in Registry(broker).queries().values()} == {w_us}


def test_a_query_over_a_fixed_topic_is_registered_with_its_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also with the logs of partitions that the topic has no longer."""
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    Registry(broker).publish_partitions("s2", 5)
    fixed = TopicSpec("readings", from_="end", partitions="fixed")
    streams = {name: stream(name, fixed) for name in ("s1", "s2")}
    streams["s3"] = stream("s3", replace(fixed, partitions="watched"))
    queries = {"q": query("q", "s1", "s2", "s3"), "r": query("r", "s3")}
    monkeypatch.setattr(starts, "beginning", lambda *of: 7_000_000)
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {"readings": 3})
    monkeypatch.setattr(broker, "cluster", None, raising=False)
    wanted = Registration(cast(Any, broker), Deployment("wall", streams, queries), Path("d.yaml"))
    assert register(wanted, ["q"], WallClock()) == []
    (applied,) = wanted.define({"r": "now"}, WallClock())
    assert Registry(broker).queries()["q"].partitions == {"s1": 3, "s2": 5}
    assert applied.partitions == {}


def test_the_logs_are_divided_among_children_when_a_query_is_registered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A query that joins the children later has their logs, however many there are by then."""
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    there = {"readings": 4}
    for name in ("of", "joined"):
        monkeypatch.setattr(starts.Starts, name, lambda *_: 7_000_000)
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: dict(there))
    monkeypatch.setattr(broker, "cluster", None, raising=False)
    streams = {"s1": replace(stream("s1"), topic=TopicSpec("readings")), "s2": stream("s2")}
    q, r = (replace(query(name, "s1", "s2"), children=2) for name in ("q", "r"))
    alone = Deployment("wall", streams, {"q": q})
    path = tmp_path / "d.yaml"
    Registration(cast(Any, broker), alone, path).check_children()
    register(Registration(cast(Any, broker), alone, path), ["q"], WallClock())
    of_q = Registry(broker).queries()["q"].child_logs
    assert of_q is not None
    assert dict(of_q.logs) == {"s1": (0, 0, 0, 1), "s2": (1,)}
    assert dict(of_q.added) == {"s1": (0, 1), "s2": (1,)}

    there["readings"] = 8
    joined = replace(alone, queries={"q": q, "r": replace(r, children_of="q")})
    register(Registration(cast(Any, broker), joined, path), ["r"], WallClock())
    assert Registry(broker).queries()["r"].child_logs == of_q

    names = replace(q, name="n", child_groups=(("a", ("s1/0-7", "s2")), ("b", ("s1/8-",))))
    path.write_text("queries:\n  n:\n    children:\n      a: [s1/0-7, s2]\n      b: [s1/8-]\n")
    with pytest.raises(DeploymentError) as raised:
        Registration(cast(Any, broker), replace(alone, queries={"n": names}), path).check_children()
    assert str(raised.value) == (
        f"{path}:5: queries.n.children.b[0]: there is no s1/8: s1 has 8 logs, 0 to 7"
    )


def test_a_history_waits_for_all_its_files_but_not_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, now_us = MemoryBroker(), 0
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    deployment = share(Deployment("data", {"s1": stream("s1")}, {"q": query("q", "s1")}))
    monkeypatch.setattr(starts, "beginning", lambda *of: None if len(of) == 5 else 7_000_000)
    monkeypatch.setattr(starts, "history_speed", lambda *of: 1)
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {})
    monkeypatch.setattr(broker, "cluster", None, raising=False)
    clock = SystemClock(wall_us=lambda: now_us, monotonic_us=lambda: now_us)
    waits_since: dict[str, int] = {}

    def wanted() -> Registration:
        """A node makes a registration for each attempt."""
        at = cast(Any, broker), deployment, Path("d.yaml")
        return Registration(*at, clock=clock, waits_since=waits_since)

    assert register(wanted(), ["q"], DataClock()) == ["q"]
    assert wanted().define({"q": "now"}, DataClock()) == []
    now_us += 9_000_000
    assert register(wanted(), ["q"], DataClock()) == ["q"]
    now_us += 2_000_000
    (applied,) = wanted().define({"q": "now"}, DataClock())
    assert applied.e0_us == 7_000_000
    assert register(wanted(), ["q"], DataClock()) == []
    assert Registry(broker).queries()["q"].e0_us == 7_000_000


def of_chain(*queries: QuerySpec, clock: Clock = "wall") -> Deployment:
    streams = {name: stream(name) for name in ("s1", "s2")}
    return share(Deployment(clock, streams, {each.name: each for each in queries}))


def on(broker: MemoryBroker, deployment: Deployment) -> Registration:
    """Return a start over this file, with these registered queries."""
    found = Registration(cast(Any, broker), deployment, Path("d.yaml"))
    found.share()
    return found


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> MemoryBroker:
    """Return a broker with a registry; all streams have readings."""
    made = MemoryBroker()
    for spec in topics_for([], []):
        made.create_topic(spec.name, spec.partitions)
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {"sw.registry": 1})
    monkeypatch.setattr(starts, "beginning", lambda *of: 5_000_000)
    monkeypatch.setattr(starts, "history_speed", lambda *of: 1)
    monkeypatch.setattr(made, "cluster", None, raising=False)
    monkeypatch.setattr(made, "bootstrap", "kafka:9092", raising=False)
    return made


Q, R = query("q", "s1"), query("r", "s1")
HASTY = replace(query("hasty", "q"), bound_us=1_000_000)
"""Its bound of 1 s, less two margins, is the deadline of q's root; q's orderer has two more."""


def test_an_added_query_that_brings_registered_deadlines_forward_is_refused(
    broker: MemoryBroker,
) -> None:
    first = on(broker, of_chain(Q, R))
    assert register(first, first.missing(), WallClock()) == []
    with pytest.raises(DeploymentError) as refused:
        on(broker, of_chain(Q, R, HASTY)).missing()
    assert str(refused.value).startswith(
        "d.yaml: query hasty has a bound of 1s and reads the results of q: it would bring the"
        " first deadline of queries q, r, which are registered, forward from 1900ms to 800ms after"
        " the normal time; give hasty a bound of at least 2100ms, let it read"
        " a query of another name, or start anew"
    )
    patient = replace(HASTY, bound_us=2_100_000)
    assert on(broker, of_chain(Q, R, patient)).missing() == ["hasty"]


def test_the_one_that_is_to_be_changed_is_named_at_the_end_of_a_chain(
    broker: MemoryBroker,
) -> None:
    first = on(broker, of_chain(Q))
    register(first, first.missing(), WallClock())
    between = replace(query("between", "q"), bound_us=9_000_000)
    end = replace(query("end", "between"), bound_us=1_500_000)
    with pytest.raises(DeploymentError, match=r"query end .* of q: .* query q, which is .* 2200ms"):
        on(broker, of_chain(Q, between, end)).missing()
    end = replace(end, bound_us=2_200_000)
    assert on(broker, of_chain(Q, between, end)).missing() == ["between", "end"]


def test_a_query_is_registered_with_the_hash_of_its_keys(broker: MemoryBroker) -> None:
    """Only where Python divides them: Spark has its own, and one part has all keys."""
    rows = replace(query("rows", "s1"), window=None, aggregate=(), parts=2)
    others = (replace(query("windows", "s1"), parts=2), replace(rows, name="whole", parts=1))
    of = on(broker, of_chain(rows, *others))
    found = of.define(dict.fromkeys(("rows", "windows", "whole"), "beginning"), WallClock())
    assert {each.name: each.key_hash for each in found} == {
        "rows": "xxhash64",
        "windows": None,
        "whole": None,
    }


@pytest.mark.parametrize("state", ["running", "deleted"])
def test_a_later_generation_keeps_the_hash_of_keys(broker: MemoryBroker, state: QueryState) -> None:
    """Its first generation was registered by a build that divided such keys by CRC-32."""
    rows = replace(query("rows", "s1"), window=None, aggregate=(), parts=2)
    broker.create_topic("sw.state.rows", 2)
    registry = Registry(broker)
    registry.publish_queries(QueryDefinition("rows", 0, 7, 10_000, rows, state=state))
    for generation in (1, 2):
        later = replace(rows, name=f"rows.g{generation}", bound_us=9_000_000)
        (found,) = on(broker, of_chain(later)).define({later.name: "now"}, WallClock())
        assert (found.generation, found.key_hash) == (generation, "crc32")
        registry.publish_queries(found)


def test_a_new_generation_begins_at_the_first_window_without_a_stable_answer(
    broker: MemoryBroker,
) -> None:
    first = on(broker, of_chain(Q))
    register(first, first.missing(), WallClock())
    for spec in topics_for([], [QueryTopics("q", 1, 1, 1, True, True)]):
        if spec.name == "sw.state.q":
            broker.create_topic(spec.name, spec.partitions)
    changed = replace(Q, name="q.g2", bound_us=9_000_000)
    both = on(broker, of_chain(Q, changed))
    (begun,) = both.define({"q.g2": "now"}, WallClock())
    assert (begun.e0_us, begun.generation) == (5_000_000, 2), "q has no answer yet"
    at = Position(0)
    state = RootState("root/q.0", 1, 5, 0, 8_000_000, 9_000_000, (at,), ())
    writer = broker.writer(lambda why: None)
    writer.append("sw.state.q", 0, encode_root_state(state), b"root/q.0")
    broker.create_topic("sw.source.s1", 1)
    (begun,) = both.define({"q.g2": "beginning"}, WallClock())
    assert begun.e0_us == 8_000_000
    reading = SourceRecord(Kind.BOUNDARY, "s1", 0, 0, -1, 9_000_000, 9_000_000, 9_000_000)
    for _ in range(2):
        writer.append("sw.source.s1", 0, encode_source(reading))
    broker.delete_records({("sw.source.s1", 0): 1})
    with pytest.raises(EnvironmentProblem, match="retention has deleted readings of s1 before"):
        both.define({"q.g2": "now"}, WallClock())
    assert (
        on(broker, of_chain(replace(changed, name="r.g1"))).define({"r.g1": "now"}, WallClock())
        == []
    ), "r is not registered yet"


def test_a_file_that_has_a_changed_query_starts_the_new_generation(
    broker: MemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    first = on(broker, of_chain(Q))
    register(first, first.missing(), WallClock())
    registry, changed = Registry(broker), replace(Q, name="q.g1", bound_us=9_000_000)
    registry.publish_queries(
        QueryDefinition("q.g1", 1, 5_000_000, 250_000, changed, deployment=of_chain(changed))
    )
    edited = on(broker, of_chain(replace(Q, bound_us=9_000_000)))
    assert edited.share().queries.keys() == {"q", "q.g1"}, "the change is in progress"
    assert edited.share().queries["q"].bound_us == Q.bound_us
    assert edited.missing() == []
    registry.publish_queries(
        replace(registry.queries()["q"], state="deleted"),
        QueryDefinition("q.g1", 1, 5_000_000, 250_000, changed, deployment=of_chain(changed)),
    )
    for file in (of_chain(Q), of_chain(replace(Q, bound_us=9_000_000))):
        found = on(broker, file)
        assert found.share().queries.keys() == {"q.g1"}
        assert found.missing() == []
    assert "query q was changed at run time: generation 1 is started" in caplog.text


def test_an_applied_query_keeps_the_streams_that_the_file_lacks(broker: MemoryBroker) -> None:
    first = on(broker, of_chain(Q))
    assert register(first, first.missing(), WallClock()) == []
    far, near = query("far", "s3"), query("near", "s1")
    streams = {name: stream(name) for name in ("s1", "s3")}
    applied = Deployment("wall", streams, {"far": far, "near": near})
    for spec in (far, near):
        definition = QueryDefinition(spec.name, 0, 5_000_000, 250_000, spec, deployment=applied)
        Registry(broker).publish_queries(definition)
    file = replace(of_chain(Q), streams={"s1": stream("s1"), "s2": stream("s2")})
    found = on(broker, file).share()
    assert found.queries.keys() == {"q", "far", "near"}
    assert found.streams == {**file.streams, "s3": streams["s3"]}
    moved = replace(stream("s3"), site="roof")
    found = on(broker, replace(file, streams={**file.streams, "s3": moved})).share()
    assert found.streams["s3"] == moved, "the file's definition is newer"
    over_http = replace(
        applied, streams={**streams, "s3": replace(stream("s3"), http=HttpInputSpec())}
    )
    definition = QueryDefinition("far", 0, 5_000_000, 250_000, far, deployment=over_http)
    Registry(broker).publish_queries(definition)
    assert on(broker, file).share().streams["s3"].http is not None
    Registry(broker).publish_queries(replace(definition, state="deleted"))
    assert on(broker, file).share().streams == file.streams


def test_a_file_that_lacks_a_query_that_an_applied_one_reads_is_refused(
    broker: MemoryBroker,
) -> None:
    first = on(broker, of_chain(Q))
    assert register(first, first.missing(), WallClock()) == []
    reader = replace(query("reader", "q"), bound_us=9_000_000)
    definition = QueryDefinition(
        "reader", 0, 5_000_000, 250_000, reader, deployment=of_chain(Q, reader)
    )
    Registry(broker).publish_queries(definition)
    with pytest.raises(DeploymentError) as refused:
        on(broker, of_chain(query("other", "s1")))
    assert str(refused.value) == (
        "d.yaml: query reader was applied at run time and reads q, which the file does not have:"
        " add it to the file, or run `slackwater query delete reader` with the earlier file"
    )


def test_a_file_with_a_reader_of_a_changed_query_starts_both(broker: MemoryBroker) -> None:
    """The reader's columns are those of the first definition, whose streams the file explains."""
    wide = replace(Q, sources=("s1", "s2"))
    reader = replace(query("reader", "q"), bound_us=9_000_000)
    first = on(broker, of_chain(wide, reader))
    assert register(first, first.missing(), WallClock()) == []
    registry, changed = Registry(broker), replace(Q, name="q.g1")
    registry.publish_queries(
        replace(registry.queries()["q"], state="deleted"),
        QueryDefinition("q.g1", 1, 5_000_000, 250_000, changed, deployment=of_chain(changed)),
    )
    for file in (of_chain(wide, reader), of_chain(Q, reader)):
        found = on(broker, file)
        assert found.share().queries.keys() == {"q.g1", "reader"}
        assert found.share().queries_of("reader") == ("q.g1",)
        assert found.missing() == []
    with pytest.raises(DeploymentError, match="which was changed at run time, and has never"):
        on(broker, of_chain(replace(Q, where="x > 7"), reader))
    with pytest.raises(DeploymentError) as refused:
        on(broker, replace(of_chain(Q, reader), streams={"s1": stream("s1")}))
    assert str(refused.value) == (
        "d.yaml: query reader reads query q as it was before it was changed at run time, from s1,"
        " s2: keep s2 in the file"
    )
    with pytest.raises(DeploymentError) as refused:
        on(broker, of_chain(Q, reader, replace(reader, name="new")))
    assert str(refused.value) == (
        "d.yaml: query new is new and reads query q, which was changed at run time: leave new out"
        " at the start, and add it with `slackwater query apply d.yaml`"
    )


def test_a_deleted_query_begins_again_where_it_was_deleted(broker: MemoryBroker) -> None:
    first = on(broker, of_chain(Q))
    register(first, first.missing(), WallClock())
    registry = Registry(broker)
    registry.publish_queries(replace(registry.queries()["q"], state="deleted"))
    for spec in topics_for([], [QueryTopics("q", 1, 1, 1, True, True)]):
        if spec.name == "sw.state.q":
            broker.create_topic(spec.name, spec.partitions)
    state = RootState("root/q.0", 1, 5, 0, 8_000_000, 9_000_000, (Position(0),), ())
    writer = broker.writer(lambda why: None)
    writer.append("sw.state.q", 0, encode_root_state(state), b"root/q.0")
    broker.create_topic("sw.source.s1", 1)
    again = replace(Q, name="q.g1")
    (begun,) = on(broker, of_chain(again)).define({"q.g1": "now"}, WallClock())
    assert (begun.e0_us, begun.generation) == (8_000_000, 1)
    for other in (replace(again, parts=2), replace(again, window=WindowSpec(7, 7))):
        with pytest.raises(EnvironmentProblem, match="had another window or another number of"):
            on(broker, of_chain(other)).define({"q.g1": "now"}, WallClock())
    reading = SourceRecord(Kind.BOUNDARY, "s1", 0, 0, -1, 9_000_000, 9_000_000, 9_000_000)
    for _ in range(2):
        writer.append("sw.source.s1", 0, encode_source(reading))
    broker.delete_records({("sw.source.s1", 0): 1})
    with pytest.raises(EnvironmentProblem, match="it cannot be continued: delete it, and give the"):
        on(broker, of_chain(again)).define({"q.g1": "now"}, WallClock())


def test_one_that_was_in_the_file_from_the_beginning_may_begin_later(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restart in between finds it unregistered, with a deadline in effect from the start."""
    both = replace(HASTY, sources=("q", "s2"))
    begins = iter([5_000_000, None, None])
    monkeypatch.setattr(starts, "beginning", lambda *of: next(begins))
    first = on(broker, of_chain(Q, both, clock="data"))
    assert register(first, first.missing(), DataClock()) == ["hasty"]
    assert Registry(broker).queries()["q"].first_deadline_us == 800_000
    assert on(broker, of_chain(Q, both, clock="data")).missing() == ["hasty"]


def test_deadlines_that_an_earlier_version_registered_are_those_of_what_is_registered(
    broker: MemoryBroker,
) -> None:
    of_then = [QueryDefinition(each.name, 0, 0, 1, each) for each in (Q, HASTY)]
    assert all("deadline_us" not in each.to_json() for each in of_then)
    Registry(broker).publish_queries(*of_then)
    assert on(broker, of_chain(Q, HASTY)).missing() == []
    with pytest.raises(DeploymentError, match="from 800ms to 300ms"):
        on(broker, of_chain(Q, HASTY, replace(HASTY, name="more", bound_us=500_000))).missing()
