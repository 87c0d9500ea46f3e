"""The registry and the state records, over the broker in memory."""

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker, MemoryTransaction
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec.state_records import decode_registry, encode_registry, encode_root_state
from slackwater.deployment.parse import parse_deployment
from slackwater.model.child_logs import ChildLogs
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.records import (
    LogPosition,
    LogState,
    OrdererState,
    Position,
    RegistryRecord,
    RootState,
    SourcePosition,
    StreamPositions,
)
from slackwater.primitives.eventclock import AnchoredClock, WallClock
from slackwater.primitives.keyparts import KEY_HASHES
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.topics import QueryTopics, topics_for
from slackwater.runtime.logs.transport import read_to_end
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry
from slackwater.runtime.service.registry_entries import PARTITIONS_MAX
from slackwater.runtime.service.state import (
    read_copies,
    read_root_state,
    read_root_states,
    read_states,
    write_state,
)

SPEC = QuerySpec(
    name="climate",
    sources=("room-1", "lab"),
    where="temperature > -40",
    select=(("temperature", "temperature * 1.8 + 32"),),
    window=WindowSpec(1_000_000, 500_000),
    aggregate=("count", "avg"),
    bound_us=2_000_000,
)
CLIMATE = QueryDefinition("climate", 0, 1_458_031_647_000_000, 100_000, SPEC)
POSITION = SourcePosition(7, 100, 0, 5_000)
ORDERER = OrdererState(
    "orderer/climate.0.a", 10, 99, 12, 3, 4, (StreamPositions("room-1", *[POSITION] * 3),)
)
AT = LogPosition(3, 3, 0, Position(10, 0))
ROOT = RootState(
    "root/climate.0", 1, 5, 0, 10, 20, (Position(10),), (LogState(0, 0, 0, AT, AT, 3),)
)


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic("sw.registry")
    broker.create_topic("sw.state.climate")
    return broker


def test_rule_27_a_start_gets_a_greater_placement_number_than_all_before(
    broker: MemoryBroker,
) -> None:
    registry = Registry(broker)
    registry.publish_queries(CLIMATE)
    numbers = [Registry(broker).take_placement("root/climate.0") for _ in range(3)]
    other = registry.take_placement("root/climate.1")
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0, "0 stands for none"
    assert other > numbers[-1]
    assert registry.queries() == {"climate": CLIMATE}


def test_r17_numbers_go_on_from_those_that_were_counted(broker: MemoryBroker) -> None:
    """Who counted starts in a file of its own may have come further: from behind it stays down."""
    registry = Registry(broker)
    assert registry.take_placement("root/climate.0", above=500) > 500
    assert registry.take_placement("root/climate.1", above=7) > 501
    before = registry.take_placement("root/climate.0")
    assert registry.take_placement("root/climate.0", above=2**40) == before + 1, "made up"


def test_definitions_and_clock_come_back_as_they_were(broker: MemoryBroker) -> None:
    registry = Registry(broker)
    assert registry.clock() is None
    assert registry.queries() == {}
    assert registry.query("climate") is None
    registry.publish_clock(WallClock())
    registry.publish_queries(CLIMATE)
    assert registry.clock() == WallClock()
    assert registry.query("climate") == CLIMATE
    assert registry.wait_for_query("climate", WAIT_S_MAX) == CLIMATE


def applied(state: QueryState = "running") -> QueryDefinition:
    """A definition as one that was applied at run time."""
    deployment = parse_deployment(
        """\
apiVersion: slackwater/v1
streams:
  room-1: {key: {value: a}, time: {column: t, unit: s}, fields: [x]}
  lab:
    topic: {name: lab, format: json}
    key: {field: mote}
    time: {field: at, unit: ms}
    fields: [x]
    expect_every: 1s
queries:
  climate: {from: [room-1, lab], window: {size: 1s}, aggregate: [avg], bound: 2s}
""",
        "d.yaml",
    ).deployment
    spec = deployment.queries["climate"]
    return QueryDefinition("climate", 0, 7, 250_000, spec, deployment=deployment, state=state)


def test_a_query_that_was_applied_brings_its_deployment(broker: MemoryBroker) -> None:
    for state in ("running", "paused"):
        Registry(broker).publish_queries(applied(state))
        assert Registry(broker).wait_for_query("climate", 0) == applied(state)
        assert Registry(broker).queries() == {"climate": applied(state)}


def test_a_deleted_query_is_registered_and_not_there(broker: MemoryBroker) -> None:
    Registry(broker).publish_queries(applied())
    Registry(broker).publish_queries(applied("deleted"))
    registry = Registry(broker)
    assert registry.queries() == {}
    assert registry.query("climate") is None
    assert registry.all_queries() == {"climate": applied("deleted")}
    assert registry.wait_for_query("climate", 0).state == "deleted"


def test_children_of_a_deleted_query_are_read_by_the_others(broker: MemoryBroker) -> None:
    """1. hour reads the children of climate. 2. climate is deleted."""
    both = ("climate", "hour")
    climate = replace(SPEC, shared_by=both)
    hour = replace(SPEC, name="hour", children_of="climate", shared_by=both)
    registry = Registry(broker)
    registry.publish_queries(replace(CLIMATE, spec=climate), QueryDefinition("hour", 0, 7, 9, hour))
    assert registry.wait_for_readers("climate", [climate, hour]) == [climate, hour]
    registry.publish_queries(replace(CLIMATE, spec=climate, state="deleted"))
    assert registry.wait_for_readers("climate", [climate, hour]) == [hour]


@pytest.mark.parametrize(
    ("field", "value"),
    [("streams", {}), ("queries", {}), ("streams", 3), ("names", {"prefix": 3})],
)
def test_a_definition_whose_deployment_lacks_something_is_no_entry(
    field: str, value: object
) -> None:
    values = applied().to_json()
    values["deployment"][field] = value
    with pytest.raises(ValueError, match=r"deployment|streams|names|dictionary|string"):
        QueryDefinition.from_json(values)


def test_the_begins_of_queries_are_recorded_by_name(broker: MemoryBroker) -> None:
    registry = Registry(broker)
    assert registry.begins() == {}
    registry.publish_begins({"climate": 7, "hour": 8})
    registry.publish_clock(WallClock())
    assert registry.begins() == {"climate": 7, "hour": 8}
    awaits = replace(CLIMATE, awaits_begin=True)
    assert QueryDefinition.from_json(awaits.to_json()) == awaits
    assert "awaits_begin" not in CLIMATE.to_json()


def test_a_child_waits_for_the_first_of_its_logs(broker: MemoryBroker) -> None:
    registry = Registry(broker)
    registry.publish_partitions("lab", 2)
    assert registry.wait_for_partitions("lab", 0.1, at_least=2) == 2
    with pytest.raises(EnvironmentProblem, match="the registry has no"):
        registry.wait_for_partitions("lab", 0.1, at_least=3)
    registry.publish_partitions("lab", 4)
    assert registry.wait_for_partitions("lab", 0.1, at_least=3) == 4


def test_a_definition_has_the_child_of_each_log(broker: MemoryBroker) -> None:
    spec = replace(SPEC, sources=("t", "s"), children=2)
    logs = ChildLogs.of({"t": (0, 0, 1), "s": (1,)}, {"t": (0, 1)})
    made = replace(CLIMATE, spec=spec, child_logs=logs)
    registry = Registry(broker)
    registry.publish_queries(made)
    assert registry.query(made.name) == made, "in the order of from"
    before = made.to_json()
    del before["child_logs"]
    assert QueryDefinition.from_json(before).logs_of_children.logs == (("t", (0,)), ("s", (1,)))
    wrong = before | {"child_logs": {"logs": [["t", [0, 0]], ["s", [0]]], "added": []}}
    with pytest.raises(ValueError, match="not those of the query"):
        QueryDefinition.from_json(wrong)


def test_a_definition_has_the_logs_that_it_takes_in_of_a_fixed_topic() -> None:
    """One of an earlier version, which has none, takes in all."""
    fixed = replace(CLIMATE, partitions={"lab": 3})
    assert QueryDefinition.from_json(fixed.to_json()) == fixed
    assert "partitions" not in CLIMATE.to_json()
    for number in (0, PARTITIONS_MAX + 1):
        with pytest.raises(ValueError, match="number of partitions"):
            QueryDefinition.from_json(replace(CLIMATE, partitions={"lab": number}).to_json())


def test_a_definition_has_the_hash_of_its_keys() -> None:
    """One of an earlier version lacks it: CRC-32 without a window, else the hash of Spark."""
    rows = replace(CLIMATE, spec=replace(SPEC, window=None, aggregate=(), parts=2))
    assert "key_hash" not in rows.to_json()
    assert "key_hash" not in CLIMATE.to_json()
    assert [rows.divided_by, CLIMATE.divided_by] == ["crc32", "xxhash64"]
    for key_hash in KEY_HASHES:
        made = replace(rows, key_hash=key_hash)
        assert QueryDefinition.from_json(made.to_json()) == made
        assert made.divided_by == key_hash
        with pytest.raises(ValueError, match="the keys are not divided by"):
            QueryDefinition.from_json(replace(CLIMATE, key_hash=key_hash).to_json())
    for wrong in ("md5", ["crc32"], 5):
        with pytest.raises(ValueError, match="the keys are not divided by"):
            QueryDefinition.from_json(rows.to_json() | {"key_hash": wrong})


def test_the_newest_entry_of_a_name_counts(broker: MemoryBroker) -> None:
    registry = Registry(broker)
    registry.publish_clock(WallClock())
    anchored = AnchoredClock(1_000, 2_000, 60.0)
    registry.publish_clock(anchored)
    newer = QueryDefinition("climate", 1, 0, 50_000, SPEC)
    registry.publish_queries(CLIMATE, newer)
    assert registry.wait_for_clock(WAIT_S_MAX) == anchored
    assert registry.queries() == {"climate": newer}


def test_a_process_waits_for_an_entry_that_is_still_to_come(broker: MemoryBroker) -> None:
    found: list[QueryDefinition] = []
    thread = threading.Thread(
        target=lambda: found.append(Registry(broker).wait_for_query("climate", WAIT_S_MAX))
    )
    thread.start()
    Registry(broker).publish_clock(WallClock())
    Registry(broker).publish_queries(CLIMATE)
    thread.join(WAIT_S_MAX)
    assert found == [CLIMATE]


def test_waiting_ends_with_a_sentence(broker: MemoryBroker) -> None:
    with pytest.raises(EnvironmentProblem, match="query/climate"):
        Registry(broker).wait_for_query("climate", 0.05)


FORGED = CLIMATE.to_json()


def entry(name: str, definition: Any) -> tuple[bytes, bytes]:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return name.encode(), encode_registry(RegistryRecord(name, text))


FOREIGN: dict[str, tuple[bytes | None, bytes]] = {
    "a person's text": (b"query/climate", b"hello"),
    "no key": (None, b"hello"),
    "a key that is no text": (b"\xff\xfe", b"\x00"),
    "a tombstone of the clock": (b"clock", b""),
    "a tombstone of a query": (b"query/climate", b""),
    "an entry under another key": (b"clock", entry("query/climate", FORGED)[1]),
    "an entry without its key": (None, entry("query/climate", FORGED)[1]),
    "an entry of no known name": entry("surprise", {}),
    "no JSON": entry("query/climate", "{"),
    "no object": entry("clock", "[]"),
    "nested too deeply": entry("clock", "[" * 100_000),
    "a number of 10,000 digits": entry("clock", '{"kind": ' + "9" * 10_000 + "}"),
    "a clock of no kind": entry("clock", {"kind": "sundial"}),
    "a clock beyond all time": entry(
        "clock",
        {"kind": "anchored", "anchor_wall_us": 2**70, "anchor_event_us": 0, "speed": 1.0},
    ),
    "another query's name": entry("query/other", FORGED),
    "an unknown field": entry("query/climate", FORGED | {"surprise": 1}),
    "a field too few": entry("query/climate", {"name": "climate"}),
    "a width of nothing": entry("query/climate", FORGED | {"w_us": 0}),
    "a beginning beyond all time": entry("query/climate", FORGED | {"e0_us": -(2**70)}),
    "a text for a number": entry("query/climate", FORGED | {"e0_us": "0"}),
    "no specification": entry("query/climate", FORGED | {"spec": None}),
    "99,999 replicas": entry(
        "query/climate", FORGED | {"spec": FORGED["spec"] | {"replicas": 99_999}}
    ),
    "a window that slides by nothing": entry(
        "query/climate",
        FORGED | {"spec": FORGED["spec"] | {"window": {"size_us": 1, "slide_us": 0}}},
    ),
    "the begin of another query": entry("begin/climate", {"query": "other", "begin_us": 1}),
    "a begin at no time": entry("begin/climate", {"query": "climate", "begin_us": 2**70}),
    "a megabyte of zeros": (b"query/climate", bytes(1_000_000)),
}


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_stray_record_leaves_the_entries_as_they_were(broker: MemoryBroker, foreign: str) -> None:
    """Each of these once ended every later start: the reader met it before anything else."""
    registry = Registry(broker)
    registry.publish_clock(WallClock())
    registry.publish_queries(CLIMATE)
    key, value = FOREIGN[foreign]
    before = SKIPPED.counts().get("sw.registry", 0)
    broker.writer(no_failure).append("sw.registry", 0, value, key)
    assert registry.clock() == WallClock()
    assert registry.queries() == {"climate": CLIMATE}
    assert registry.wait_for_query("climate", WAIT_S_MAX) == CLIMATE
    assert registry.wait_for_clock(WAIT_S_MAX) == WallClock()
    assert SKIPPED.counts()["sw.registry"] == before + 4, "one for each reading"


def test_an_entry_that_a_stray_record_hides_is_written_again(broker: MemoryBroker) -> None:
    """Compaction keeps the newest record of a key: without it the entry would be gone for good."""
    registry = Registry(broker)
    registry.publish_clock(WallClock())
    registry.publish_queries(CLIMATE)
    assert registry.restore() == []
    writer = broker.writer(no_failure)
    writer.append("sw.registry", 0, b"hello", b"query/climate")
    writer.append("sw.registry", 0, b"hello", b"nobody's")
    assert registry.restore() == ["query/climate"]
    compacted = {raw.key: raw.value for raw in read_to_end(broker, ("sw.registry", 0))}
    assert decode_registry(compacted[b"query/climate"]).name == "query/climate"
    assert registry.restore() == []
    assert registry.queries() == {"climate": CLIMATE}


@given(value=st.binary(max_size=200), key=st.none() | st.binary(max_size=20))
def test_any_bytes_are_passed_over(value: bytes, key: bytes | None) -> None:
    broker = MemoryBroker()
    broker.create_topic("sw.registry")
    Registry(broker).publish_queries(CLIMATE)
    broker.writer(no_failure).append("sw.registry", 0, value, key)
    assert Registry(broker).queries() == {"climate": CLIMATE}


@given(st.data())
def test_an_entry_with_bytes_changed_is_an_entry_or_is_passed_over(data: st.DataObject) -> None:
    key, value = entry("query/climate", FORGED)
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    broker = MemoryBroker()
    broker.create_topic("sw.registry")
    Registry(broker).publish_clock(WallClock())
    broker.writer(no_failure).append("sw.registry", 0, bytes(damaged), key)
    found = Registry(broker).queries()
    assert found.keys() <= {"climate"}
    assert Registry(broker).clock() == WallClock()


def test_state_records_the_newest_of_each_fragment(broker: MemoryBroker) -> None:
    writer = broker.writer(no_failure)
    assert read_states(broker, "climate", 1) == {}
    write_state(
        writer, broker.names, "climate", OrdererState("orderer/climate.0.a", 1, 9, 1, 1, 1, ())
    )
    write_state(writer, broker.names, "climate", ORDERER)
    with broker.transaction() as transaction:
        transaction.append("sw.state.climate", 0, encode_root_state(ROOT), ROOT.fragment.encode())
    aborted = broker.transaction()
    later = RootState("root/climate.0", 2, 9, 0, 10, 20, (), ())
    aborted.append("sw.state.climate", 0, encode_root_state(later), later.fragment.encode())
    aborted.abort()
    assert read_states(broker, "climate", 1) == {ORDERER.fragment: ORDERER, ROOT.fragment: ROOT}
    assert read_root_states(broker, "climate", 1) == {ROOT.fragment: ROOT}


def test_copies_records_are_read_regardless_of_an_open_transaction(broker: MemoryBroker) -> None:
    """trace-17: a name's greatest number counts, though a zombie has written last (rule-5)."""
    writer = broker.writer(no_failure)
    own = replace(ROOT, fragment="root/climate.0.b", placement=5)
    opened = broker.transaction()
    opened.append("sw.state.climate", 0, encode_root_state(ROOT), ROOT.fragment.encode())
    for number in (5, 7, 6):
        write_state(writer, broker.names, "climate", replace(own, placement=number))
    assert read_copies(broker, "climate", 0) == {own.fragment: replace(own, placement=7)}
    assert read_states(broker, "climate", 1) == {}, "an open transaction hides them"
    opened.abort()
    assert read_states(broker, "climate", 1) == {own.fragment: replace(own, placement=6)}


def emitted(broker: MemoryBroker, part: int, next_seq: int, partition: int) -> MemoryTransaction:
    """A transaction with the state record of a part's root; not committed yet."""
    state = RootState(f"root/two.{part}", 1, next_seq, 0, 10, 20, (), ())
    transaction = broker.transaction()
    transaction.append("sw.state.two", partition, encode_root_state(state), state.fragment.encode())
    return transaction


def seq_of(broker: MemoryBroker, part: int) -> int | None:
    state = read_root_state(broker, "two", part)
    return None if state is None else state.next_seq


def test_r18_a_root_that_stops_in_its_transaction_hides_no_other_part_s_record(
    broker: MemoryBroker,
) -> None:
    """Else the other part, started again meanwhile, would answer again what it has committed."""
    (topic,) = (t for t in topics_for([], [QueryTopics("two", parts=2)]) if ".state." in t.name)
    broker.create_topic(topic.name, topic.partitions)
    emitted(broker, 0, next_seq=5, partition=0).commit()
    stopped = emitted(broker, 1, next_seq=7, partition=1)
    emitted(broker, 0, next_seq=6, partition=0).commit()
    assert seq_of(broker, 0) == 6
    assert seq_of(broker, 1) is None
    stopped.commit()
    assert seq_of(broker, 1) == 7
    assert [s.next_seq for s in read_root_states(broker, "two", 2).values()] == [6, 7]


def test_records_of_a_topic_that_had_one_partition_are_found_until_there_are_newer_ones(
    broker: MemoryBroker,
) -> None:
    broker.create_topic("sw.state.two", 2)
    emitted(broker, 1, next_seq=5, partition=0).commit()
    assert seq_of(broker, 1) == 5
    emitted(broker, 1, next_seq=6, partition=1).commit()
    assert seq_of(broker, 1) == 6
    assert read_root_states(broker, "two", 2)["root/two.1"].next_seq == 6
