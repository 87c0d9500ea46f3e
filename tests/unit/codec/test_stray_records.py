"""Foreign records in every internal topic: each reader skips them.

Those in the registry are in ``test_registry``, those among results in ``test_result_batches``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.contracts.transport import no_failure
from tests.paper.stage import Orderer, Root, Settings, Source
from tests.support.memory import MemoryBroker
from tests.unit.codec.build import ENCODE, RECORDS

from slackwater.client.follow import Follower, Seen
from slackwater.codec import (
    encode_delta,
    encode_heartbeat,
    encode_ordered,
    encode_orderer_state,
    encode_root_state,
    encode_source,
)
from slackwater.codec.results import ResultHead, encode_boundary, encode_rec_done
from slackwater.host.decoding import decode, decode_ordered_record
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.model.records import (
    DeltaRecord,
    Heartbeat,
    Kind,
    LogPosition,
    LogState,
    OrderedRecord,
    OrdererState,
    Position,
    RootState,
    SourcePosition,
    SourceRecord,
    StreamPositions,
)
from slackwater.protocols.common.line import LineName
from slackwater.protocols.common.states import LineState
from slackwater.protocols.dpc.reconcile.staggering import PeerStatus
from slackwater.protocols.dpc.soutput.answers import EmptyRun, RecDone
from slackwater.protocols.dpc.soutput.config import DeltaLog
from slackwater.protocols.dpc.sunion.recovery import is_within
from slackwater.registration.truncation import Truncation, not_needed
from slackwater.rehearsal.local import _quarantined
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.logs.transport import RawRecord
from slackwater.runtime.service.heartbeat_view import REFUTED_S, STALE_S, HeartbeatView
from slackwater.runtime.service.heartbeats import (
    HeartbeatListener,
)
from slackwater.runtime.service.state import read_part, read_root_state, read_states
from slackwater.sessions.effects import Skipped

NAMES = Names()
STATE = NAMES.state("climate")
POSITION = SourcePosition(7, 100, 0, 5_000)
ORDERER = OrdererState(
    "orderer/climate.0.a", 10, 99, 12, 3, 4, (StreamPositions("room-1", *[POSITION] * 3),)
)
AT = LogPosition(3, 3, 0, Position(10, 0))
ROOT = RootState(
    "root/climate.0", 1, 5, 0, 10, 20, (Position(10),), (LogState(0, 0, 0, AT, AT, 3),)
)
BEAT = Heartbeat(
    process="orderer/climate.0.a", pid=10, started_at=1_000, at=2_000, inc=5, ready=True, states={}
)
FOREIGN = [b"", b"hello", b"\x00" * 100_000, b"\xc3\x01surprise", orjson.dumps({"kind": "stable"})]


def skipped(topic: str) -> int:
    return SKIPPED.counts().get(topic, 0)


# --- state records --------------------------------------------------------------------------------


def states() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic(STATE)
    with broker.transaction() as transaction:
        transaction.append(STATE, 0, encode_root_state(ROOT), b"root/climate.0")
    broker.writer(no_failure).append(
        STATE, 0, encode_orderer_state(ORDERER), b"orderer/climate.0.a"
    )
    return broker


def place(**changed: Any) -> StreamPositions:
    return StreamPositions("room-1", *[replace(POSITION, **changed)] * 3)


IMPOSSIBLE: dict[str, tuple[bytes, bytes]] = {
    "another's record": (b"root/climate.0", encode_orderer_state(ORDERER)),
    "under another name": (
        b"root/climate.0",
        encode_root_state(replace(ROOT, fragment="root/climate.1")),
    ),
    "a placement number beyond all": (
        b"root/climate.0",
        encode_root_state(replace(ROOT, placement=2**62)),
    ),
    "a negative seq": (b"root/climate.0", encode_root_state(replace(ROOT, next_seq=-7))),
    "S behind T": (b"root/climate.0", encode_root_state(replace(ROOT, stable_from=10**9))),
    "a time beyond all": (
        b"root/climate.0",
        encode_root_state(replace(ROOT, answered_to=2**63 - 1)),
    ),
    "a negative offset": (
        b"orderer/climate.0.a",
        encode_orderer_state(replace(ORDERER, streams=(place(offset=-5),))),
    ),
    "an incarnation beyond all": (
        b"orderer/climate.0.a",
        encode_orderer_state(replace(ORDERER, streams=(place(inc=2**62),))),
    ),
    "a promise beyond all": (
        b"orderer/climate.0.a",
        encode_orderer_state(replace(ORDERER, streams=(place(boundary=2**63 - 1),))),
    ),
    "a frontier beyond all": (
        b"orderer/climate.0.a",
        encode_orderer_state(replace(ORDERER, frontier=-(2**63))),
    ),
}


@pytest.mark.parametrize(
    "key", [b"root/climate.0", b"orderer/climate.0.a", b"\xff", b"nobody", None]
)
@pytest.mark.parametrize("value", FOREIGN)
def test_foreign_state_records_leave_the_newest_of_ours(key: bytes | None, value: bytes) -> None:
    broker, before = states(), skipped(STATE)
    broker.writer(no_failure).append(STATE, 0, value, key)
    assert read_states(broker, "climate", 1) == {s.fragment: s for s in (ROOT, ORDERER)}
    assert skipped(STATE) == before + 1


@pytest.mark.parametrize("foreign", IMPOSSIBLE)
def test_impossible_state_records_leave_the_newest_of_ours(foreign: str) -> None:
    broker, before = states(), skipped(STATE)
    key, value = IMPOSSIBLE[foreign]
    broker.writer(no_failure).append(STATE, 0, value, key)
    assert read_root_state(broker, "climate", 0) == ROOT
    assert read_states(broker, "climate", 1)[ORDERER.fragment] == ORDERER
    readings = 2 if key.startswith(b"root/") else 1
    assert skipped(STATE) == before + readings, "a root decodes no records of orderers"


def test_generations_have_their_records_in_one_log() -> None:
    broker, before = states(), skipped(STATE)
    later = replace(ROOT, fragment="root/climate.g1.0", next_seq=ROOT.next_seq + 1)
    for state in (later, replace(later, fragment="root/climate.g4.0")):
        value = encode_root_state(state)
        broker.writer(no_failure).append(STATE, 0, value, state.fragment.encode())
    assert read_root_state(broker, "climate", 0) == ROOT
    assert read_root_state(broker, "climate.g1", 0) == later
    assert read_root_state(broker, "climate.g2", 0) is None
    assert read_part(broker, "climate", 0)[1].keys() == {1, 4}
    assert read_part(broker, "climate.g1", 0)[1][0] == ROOT
    assert skipped(STATE) == before


@settings(max_examples=50)
@given(data=st.data(), name=st.sampled_from(["orderer_state", "root_state"]))
def test_no_state_record_ends_its_reader(data: st.DataObject, name: str) -> None:
    value = bytearray(ENCODE[name](data.draw(RECORDS[name])))
    for _ in range(data.draw(st.integers(0, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    broker = states()
    for key in (b"root/climate.0", b"orderer/climate.0.a"):
        broker.writer(no_failure).append(STATE, 0, bytes(value), key)
    assert read_states(broker, "climate", 1).keys() == {ROOT.fragment, ORDERER.fragment}


def test_a_state_record_that_does_not_fit_gives_way_to_an_older_one() -> None:
    broker = states()
    excess = replace(ORDERER, streams=(place(offset=10**12),))
    broker.writer(no_failure).append(STATE, 0, encode_orderer_state(excess), b"orderer/climate.0.a")
    of_others = replace(ROOT, logs=(LogState(0, 99, 0, AT, AT, 3),))
    broker.writer(no_failure).append(STATE, 0, encode_root_state(of_others), b"root/climate.0")

    def fits(state: OrdererState | RootState) -> bool:
        if isinstance(state, OrdererState):
            return is_within(state, [8])
        return state.logs[0].replica < 2

    assert read_states(broker, "climate", 1, fits=fits) == {s.fragment: s for s in (ROOT, ORDERER)}


def test_a_root_judges_its_own_state_records_only() -> None:
    broker, before = states(), skipped(STATE)
    assert read_root_state(broker, "climate", 0, fits=lambda state: state == ROOT) == ROOT
    assert skipped(STATE) == before, "the orderers' records in its partition do not count"


def test_a_forged_state_record_truncates_no_log_that_it_names_wrongly() -> None:
    spec = QuerySpec(
        "climate", ("room-1",), None, None, WindowSpec(1, 1), ("count",), 2_000_000, replicas=2
    )
    far = LogPosition(10**12, 3, 0, Position(10, 0))
    forged = replace(
        ROOT,
        logs=tuple(
            LogState(child, replica, 0, far, far, 10**12)
            for child, replica in ((0, 0), (0, 99), (99, 0), (-1, 0))
        ),
    )
    assert set(not_needed([spec], {ROOT.fragment: forged})) == {(NAMES.deltas("climate", 0), 0)}
    broker = states()
    broker.create_topic(NAMES.registry)
    broker.create_topic(NAMES.deltas("climate", 0), 4)
    broker.create_topic(NAMES.ordered("climate", 0), 4)
    broker.writer(no_failure).append(NAMES.deltas("climate", 0), 0, b"unread")
    broker.writer(no_failure).append(STATE, 0, encode_root_state(forged), b"root/climate.0")
    truncation = Truncation(broker, [spec])
    for _ in range(2):
        assert truncation.step() == {}
    log = (NAMES.deltas("climate", 0), 0)
    assert broker.beginning_offsets([log]) == {log: 0}


# --- heartbeats -----------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Any:
    broker = MemoryBroker()
    broker.create_topic(NAMES.heartbeats)
    made = HeartbeatListener(broker)
    made.broker = broker  # type: ignore[attr-defined]
    yield made.start()
    made.stop()


def test_foreign_heartbeats_are_counted_and_say_nothing(listener: Any) -> None:
    before, writer = skipped(NAMES.heartbeats), listener.broker.writer(no_failure)
    absurd = replace(
        BEAT,
        process="root/climate.0",
        states={NAMES.results("climate", "stable"): "SURPRISE"},
        detail={"turn_asks": 1, "read_0.a": -(2**63)},
    )

    def receives() -> bool:
        # It listens from its assignment on, so the last records are repeated until it has.
        for value in FOREIGN:
            writer.append(NAMES.heartbeats, 0, value, b"anything")
        writer.append(NAMES.heartbeats, 0, encode_heartbeat(absurd))
        return bool(listener.wait_for(lambda view: view.latest("root/climate.0"), 0.2))

    assert any(receives() for _ in range(50))
    assert list(listener.all()) == ["root/climate.0"]
    assert skipped(NAMES.heartbeats) >= before + len(FOREIGN)


def test_foreign_records_are_not_heartbeats() -> None:
    assert LineState.of("SURPRISE") is None
    assert LineState.of(None) is None
    assert LineState.of("STABLE") is LineState.STABLE
    assert PeerStatus.of({"turn_asks": 1}) is None


def test_heartbeats_are_bounded_and_active_senders_are_kept() -> None:
    view = HeartbeatView(bytes_max=1_000)
    for i in range(10_000):
        view.observe(BEAT, i / 10, 100)
        view.observe(replace(BEAT, process=f"nobody/{i}"), i / 10, 100)
    assert len(view.all()) == 10
    assert view.latest(BEAT.process) == BEAT


def test_a_claim_that_is_refuted_does_not_count_until_it_is_looked_at_again() -> None:
    view = HeartbeatView()
    view.observe(BEAT, 0.0)
    forged = replace(BEAT, pid=99, started_at=2**62, inc=2**62)
    view.observe(forged, 0.1)
    assert view.superseded(BEAT.process, 5)
    view.refute(BEAT.process, 0.2)
    view.observe(forged, 0.3)
    assert not view.superseded(BEAT.process, 5)
    view.observe(BEAT, 0.3 + STALE_S + 0.1)
    assert view.latest(BEAT.process) == BEAT, "the forged heartbeat is stale by now"
    view.observe(forged, 0.2 + REFUTED_S + 0.1)
    assert view.superseded(BEAT.process, 5)


# --- source logs and an orderer's own -------------------------------------------------------------


@pytest.mark.parametrize("value", FOREIGN)
def test_foreign_bytes_are_void_to_every_reader_of_a_log(value: bytes) -> None:
    source, ordered = NAMES.source("room-1"), NAMES.ordered("climate", 0)
    before = skipped(source), skipped(ordered)
    assert decode("source", (source, 0), 7, value) is None
    assert decode_ordered_record(RawRecord(ordered, 0, 7, 0, None, value)) is None
    assert (skipped(source), skipped(ordered)) == (before[0] + 1, before[1] + 1)


FORGED_INC = 2**62


@pytest.mark.parametrize("kind", [Kind.INSERTION, Kind.BOUNDARY])
def test_an_incarnation_that_has_not_begun_is_none(kind: Kind) -> None:
    """Otherwise all readers of the log would drop its writer's records, for ever (rule-10)."""
    log = (NAMES.source("room-1"), 0)
    for inc, is_read in ((-1, True), (7, True), (8, False), (FORGED_INC, False)):
        value = encode_source(SourceRecord(kind, "room-1", inc, 0, -1, 5, 5, 5))
        assert (decode("source", log, 7, value) is not None) == is_read, inc


@pytest.mark.parametrize(
    ("child", "replica", "inc", "is_read"),
    [(0, 1, 7, True), (0, 1, 8, False), (0, 1, FORGED_INC, False), (0, 99, 7, False),
     (5, 1, 7, False)],
)  # fmt: skip
@pytest.mark.parametrize("windowed", [True, False])
def test_a_root_reads_what_the_log_s_orderer_can_have_written(
    child: int, replica: int, inc: int, is_read: bool, windowed: bool
) -> None:
    settings = Settings(rows=not windowed)
    root = Root(
        [Orderer([Source("s1")], settings, replica=r, replicas=2) for r in range(2)], settings
    )
    at = list(root.session.inputs)[root.config.logs.index(DeltaLog(0, 1, LineName.STABLE))]
    ordered = OrderedRecord(Kind.BOUNDARY, child, replica, inc, 0, 10)
    if windowed:
        none = np.zeros((0, 0))
        value = encode_delta(
            DeltaRecord(Kind.BOUNDARY, child, replica, inc, 0, 10, 7, count=none, sum=none,
                        m2=none, min=none, max=none)
        )  # fmt: skip
        found = decode("deltas", at, 9, value)
    else:
        found = decode("ordered", at, 7, encode_ordered(ordered))
    record = root.session._logs.checked(at, 9 if windowed else 7, found)
    assert record.seq == 7, "it takes its seq in any case"
    assert (record.kind is Kind.BOUNDARY) == is_read
    reported = [effect for effect in root.session.step(0) if isinstance(effect, Skipped)]
    assert bool(reported) != is_read, "skipped records are counted"


# --- results, as a client reads them --------------------------------------------------------------


def boundary(seq: int, /, **changed: Any) -> bytes:
    run = EmptyRun(seq, 0, True, seq * 1_000_000, (seq + 1) * 1_000_000, 1, 0, ())
    value = encode_boundary(ResultHead("climate", 0), run, 0)
    return orjson.dumps(orjson.loads(value) | changed)


FOREIGN_RESULTS: dict[str, bytes] = {
    **{f"foreign {i}": value for i, value in enumerate(FOREIGN)},
    "a seq beyond all": boundary(1, seq=10**15),
    "a seq beyond all numbers": boundary(1, seq=2**62),
    "a negative seq": boundary(1, seq=-4),
    "of another query": boundary(1, query="other"),
    "of another part": boundary(1, part=3),
    "with no time": boundary(1, window_start="soon"),
    "with another label": boundary(1, label="surprise"),
    "with no window": boundary(1, windows=0),
    "rec_done of another": encode_rec_done(ResultHead("other", 0), RecDone(2, 0), 0),
}


@pytest.mark.parametrize("from_", ["beginning", "end"])
@pytest.mark.parametrize("kind", RESULT_KINDS)
@pytest.mark.parametrize("foreign", FOREIGN_RESULTS)
def test_a_client_passes_over_what_no_root_has_written(
    monkeypatch: pytest.MonkeyPatch, foreign: str, kind: Any, from_: Any
) -> None:
    monkeypatch.setattr("slackwater.client.follow.GAP_WAIT_US", 0)
    broker, topic = MemoryBroker(), NAMES.results("climate", "stable")
    for each in RESULT_KINDS:
        broker.create_topic(NAMES.results("climate", each))
    writer = broker.writer(no_failure)
    writer.append(topic, 0, boundary(0))
    before = skipped(NAMES.results("climate", kind))
    writer.append(NAMES.results("climate", kind), 0, FOREIGN_RESULTS[foreign])
    follower = Follower(broker, "climate", 1, from_)
    writer.append(topic, 0, boundary(1))
    if from_ == "beginning":
        writer.append(NAMES.results("climate", kind), 0, FOREIGN_RESULTS[foreign])
    writer.append(topic, 0, boundary(2))
    seen: list[int] = []
    for _ in range(50):
        seen += [item.record["seq"] for item in follower.poll(0.0) if isinstance(item, Seen)]
    assert seen == ([0, 1, 2] if from_ == "beginning" else [1, 2])
    assert (follower.repeats, follower.cuts) == (0, [])
    assert from_ == "end" or skipped(NAMES.results("climate", kind)) > before


# --- quarantine -----------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [*FOREIGN, b"[]", b"7", b'{"reason": "late"}', b"[" * 100_000])
def test_a_quarantine_holds_what_its_proxy_wrote(value: bytes) -> None:
    topic = NAMES.quarantine("room-1")
    before = skipped(topic)
    assert _quarantined(RawRecord(topic, 0, 7, 0, None, value)) == set()
    assert skipped(topic) == before + 1
    complete = orjson.dumps({"reason": "late", "position": "line:7"})
    assert _quarantined(RawRecord(topic, 0, 7, 0, None, complete)) == {("late", "line:7")}
