"""Which panes and heads are written, and in which order (Flux, 3.3.1; trace-61)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slackwater.model.heads import (
    Head,
    HeadKey,
    Key,
    PaneColumns,
    PaneKey,
    PaneRecord,
    PaneRef,
    Stored,
    StoredState,
    parse_key,
    text_of,
)
from slackwater.protocols.common.pane_writing import IN_FLIGHT_CELLS_MAX, TURN_CELLS_MAX
from slackwater.protocols.flux.movement import HeadPace, HeadWriter, complete_heads

PACE = HeadPace(1_000, 10)
HEAD = Head(0, 0, 0, 0, 0, 0, (0,), ((),), (), ())


class Texts:
    """Panes that are texts; each character is a piece, and a number."""

    def __init__(self, cells: int = 1) -> None:
        self._cells = cells

    def pieces(self, value: str) -> int:
        return len(value)

    def cells(self, value: str) -> int:
        return self._cells * len(value)

    def digest_of_piece(self, value: str, piece: int) -> tuple[int, ...]:
        return (ord(value[piece]) << 8 * piece,)

    def total_digest(self, of_pieces: Iterable[tuple[int, ...]]) -> int:
        return sum(piece for (piece,) in of_pieces)

    def extract(self, value: str, piece: int) -> PaneColumns:
        return PaneColumns((value[piece],), np.zeros((6, 1, 1)), {})


class Log:
    """What is stored; the writer's records arrive when ``acknowledge`` is called."""

    def __init__(self, cells: int = 1, *, term: int = 1, stored: StoredState | None = None) -> None:
        self.records: dict[Key, Stored] = {}
        self.waiting: list[tuple[Key, Stored]] = []
        self.written: list[tuple[Key, Stored]] = []
        self.writer = HeadWriter(term, Texts(cells), stored or StoredState(), 0, PACE)

    def turn(self) -> list[tuple[Key, Stored]]:
        found = self.writer.write()
        self.waiting += found
        self.written += found
        return found

    def acknowledge(self) -> None:
        for key, record in self.waiting:
            self.records[key] = record
            self.writer.acknowledged()
        self.waiting.clear()

    def is_busy(self) -> bool:
        return self.writer.is_busy

    def store(self, panes: dict[tuple[int, int], str], now: int = 0) -> None:
        """Write a head of these panes to the end."""
        self.writer.cut(HEAD, panes, now)
        for _ in range(10_000):
            self.turn()
            self.acknowledge()
            if not self.writer.is_busy:
                return
        raise AssertionError("it is never done")

    @property
    def state(self) -> StoredState:
        present = {key: record for key, record in self.records.items() if record is not None}
        heads = tuple(record for record in present.values() if isinstance(record, Head))
        pieces = {
            key: of
            for key, of in present.items()
            if isinstance(key, PaneKey) and isinstance(of, PaneRecord)
        }
        return StoredState(heads, pieces, frozenset(present))


def keys_of(records: Iterable[tuple[Key, Stored]]) -> list[str]:
    """Return the panes that were written, a letter for each piece; ``+`` is a head, ``-`` a key."""
    found = []
    for key, record in records:
        if isinstance(record, PaneRecord):
            found.append(record.columns.keys[0])
        else:
            found.append("+" if isinstance(key, HeadKey) and record is not None else "-")
    return found


def test_a_head_follows_the_acknowledgement_of_its_panes() -> None:
    log = Log()
    log.writer.cut(HEAD, {(0, 0): "ab", (0, 10): "c"}, 0)
    assert keys_of(log.turn()) == ["a", "b", "c"]
    assert log.turn() == []
    assert not log.is_busy()
    log.acknowledge()
    assert log.is_busy()
    assert keys_of(log.turn()) == ["+"]
    assert log.writer.heads == []
    log.acknowledge()
    log.turn()
    assert [head.number for head in log.writer.heads] == [0]


def test_a_pane_is_written_once() -> None:
    log, complete = Log(), "a"
    log.store({(0, 0): complete, (0, 10): "b"})
    log.store({(0, 0): complete, (0, 10): "bc"})
    log.store({(0, 0): complete, (0, 10): "bcd"})
    assert keys_of(log.written).count("a") == 1


def test_two_heads_are_kept_and_what_neither_names_is_deleted() -> None:
    log = Log()
    for number in range(4):
        log.store({(0, 10 * number): chr(97 + number), (0, 10 * number + 10): chr(98 + number)})
    assert sorted(head.number for head in log.state.heads) == [2, 3]
    letters = {record.columns.keys[0] for record in (log.state.pieces or {}).values()}
    assert letters == {"c", "d", "e"}


def test_turns_and_what_is_in_flight_are_bounded() -> None:
    log = Log(cells=TURN_CELLS_MAX)
    log.writer.cut(HEAD, {(0, 0): "abcdef"}, 0)
    turns = 0
    while len(log.waiting) < IN_FLIGHT_CELLS_MAX // TURN_CELLS_MAX:
        assert len(log.turn()) <= 1
        turns += 1
    assert turns == 6 + 2, "a turn for the digest of each piece, and one for each that is written"
    assert log.turn() == []
    assert not log.writer.is_busy


def test_a_head_is_due_when_reading_again_takes_long_and_not_at_once() -> None:
    log = Log()
    assert not log.writer.may_cut(0, lambda _: 999)
    assert log.writer.may_cut(0, lambda _: 1_000)
    log.writer.cut(HEAD, {}, 0)
    assert not log.writer.may_cut(100, lambda _: 1_000), "one is being written"
    log.turn()
    log.acknowledge()
    log.turn()
    assert not log.writer.may_cut(9, lambda _: 1_000)
    assert log.writer.may_cut(10, lambda newest: 1_000 if newest else 0)


def test_another_copy_writes_what_is_not_there() -> None:
    first = Log()
    first.store({(0, 0): "a", (0, 10): "b"})
    first.store({(0, 0): "a", (0, 10): "b"})
    second = Log(term=2, stored=replace(first.state, pieces=None))
    assert [head.order for head in second.writer.heads] == [(1, 0), (1, 1)]
    second.store({(0, 10): "b", (0, 20): "c"})
    assert keys_of(second.written)[:2] == ["c", "+"]
    assert HeadKey(1, 0) in {key for key, record in second.written if record is None}


def test_a_head_that_lacks_a_pane_is_not_taken() -> None:
    log = Log()
    log.store({(0, 0): "a", (0, 10): "b"})
    log.store({(0, 10): "b", (0, 20): "c"})
    state = log.state
    assert [head.number for head in complete_heads(state.heads, state.keys, 0)] == [1, 0]
    without = {key for key in state.keys if not (isinstance(key, PaneKey) and key.ref.start == 20)}
    assert [head.number for head in complete_heads(state.heads, without, 0)] == [0]
    without = {key for key in state.keys if not (isinstance(key, PaneKey) and key.ref.start == 0)}
    assert [head.number for head in complete_heads(state.heads, without, 0)] == [1]
    assert [head.number for head in complete_heads(state.heads, without, 10)] == [1, 0], "S is 10"


@given(
    st.lists(
        st.dictionaries(
            st.tuples(st.integers(0, 1), st.integers(0, 4)), st.text("abc", min_size=1, max_size=3)
        ),
        max_size=6,
    ),
    st.integers(0, 80),
    st.integers(1, TURN_CELLS_MAX),
)
def test_whenever_it_ends_the_newest_heads_have_all_their_panes(
    heads: list[dict[tuple[int, int], str]], steps: int, cells: int
) -> None:
    log, remaining = Log(cells), steps
    for number, panes in enumerate(heads):
        log.writer.cut(HEAD, panes, number)
        while remaining:
            remaining -= 1
            log.turn()
            # A part of what is in flight arrives, and its order is kept.
            arrived = log.waiting[: max(1, len(log.waiting) // 2)]
            del log.waiting[: len(arrived)]
            for key, record in arrived:
                log.records[key] = record
                log.writer.acknowledged()
            state = log.state
            found = complete_heads(state.heads, state.keys, 0)
            assert [head.number for head in found] == sorted(
                (head.number for head in state.heads), reverse=True
            )
            if not log.waiting and not log.writer.is_busy:
                break
        else:
            return


@given(st.integers(-3, 3), st.integers(), st.integers(0, 1 << 40), st.integers(-(1 << 63), 1 << 63))
def test_keys_are_texts(child: int, start: int, rows: int, digest: int) -> None:
    for key in (HeadKey(rows, child), PaneKey(PaneRef(child, start, rows, 2, digest), 1)):
        assert parse_key(text_of(key)) == key
    for text in ("", "head", "head/1", "head/1/2/3", "1/2/3", "a/b/c/d/e/f", "1/2/3/4/5/6/7"):
        assert parse_key(text) is None
