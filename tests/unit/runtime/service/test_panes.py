"""What roots have stored: of each key the last record, and damaged ones are skipped (rule-34)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker

from slackwater.codec.pane_records import encode_pane
from slackwater.model.heads import (
    Head,
    HeadKey,
    Key,
    PaneColumns,
    PaneKey,
    PaneRecord,
    PaneRef,
    Stored,
    text_of,
)
from slackwater.runtime.logs.skipped import SKIPPED
from slackwater.runtime.service.panes import encode_stored, read_panes

LOG = ("sw.panes.q", 1)
REFS = [PaneRef(0, start, 2, 1, 7 + start) for start in (0, 10, 20)]


def pane(ref: PaneRef) -> PaneRecord:
    """Return the only piece of a pane."""
    return PaneRecord(ref, 0, PaneColumns(("a", "b"), np.full((6, 1, 2), float(ref.start)), {}))


def head(number: int, *refs: PaneRef) -> Head:
    """Return a head that names these panes."""
    return Head(1, number, 0, 0, 0, 0, (30,), ((),), refs, ())


@pytest.fixture
def broker() -> MemoryBroker:
    broker = MemoryBroker()
    broker.create_topic(LOG[0], 2)
    return broker


def store(broker: MemoryBroker, *records: tuple[Key, Stored]) -> None:
    """Write records as a root does."""
    writer = broker.writer(no_failure)
    for key, record in records:
        writer.append(*LOG, encode_stored(record), text_of(key).encode())


def panes(*refs: PaneRef) -> list[tuple[Key, Stored]]:
    return [(PaneKey(ref, 0), pane(ref)) for ref in refs]


def test_heads_and_the_panes_that_they_name_are_read(broker: MemoryBroker) -> None:
    store(broker, *panes(*REFS), (HeadKey(1, 0), head(0, *REFS[:2])))
    found = read_panes(broker, "q", 1, keys_only=False)
    assert [each.panes for each in found.heads] == [tuple(REFS[:2])]
    assert {key.ref for key in found.pieces or {}} == {*REFS[:2]}
    assert len(found.keys) == 4
    record = (found.pieces or {})[PaneKey(REFS[1], 0)]
    assert record.columns.figures.tolist() == pane(REFS[1]).columns.figures.tolist()
    assert read_panes(broker, "q", 1, keys_only=True).pieces == {}
    assert read_panes(broker, "q", 0, keys_only=False).keys == frozenset()


def test_a_deleted_key_is_gone_and_a_head_takes_the_place_of_another(broker: MemoryBroker) -> None:
    store(
        broker,
        *panes(*REFS),
        (HeadKey(1, 0), head(0, REFS[0])),
        (HeadKey(1, 0), head(2, REFS[1], REFS[2])),
        (PaneKey(REFS[0], 0), None),
    )
    found = read_panes(broker, "q", 1, keys_only=False)
    assert [each.number for each in found.heads] == [2]
    assert {key.ref for key in found.pieces or {}} == {*REFS[1:]}
    assert PaneKey(REFS[0], 0) not in found.keys


def test_what_is_damaged_or_of_others_is_counted_and_left_out(broker: MemoryBroker) -> None:
    store(broker, *panes(REFS[0]), (HeadKey(1, 0), head(0, *REFS)))
    writer = broker.writer(no_failure)
    for key, value in (
        (text_of(PaneKey(REFS[1], 0)).encode(), b"\xc3\x01 damage"),
        (text_of(PaneKey(REFS[2], 0)).encode(), encode_pane(pane(REFS[1]))),
        (text_of(HeadKey(2, 0)).encode(), b"damage"),
        (b"of-others", b"x"),
        (None, b"x"),
    ):
        writer.append(*LOG, value, key)
    before = SKIPPED.counts().get(LOG[0], 0)
    found = read_panes(broker, "q", 1, keys_only=False)
    assert {key.ref for key in found.pieces or {}} == {REFS[0]}
    assert [each.order for each in found.heads] == [(1, 0)]
    assert SKIPPED.counts()[LOG[0]] - before == 5
