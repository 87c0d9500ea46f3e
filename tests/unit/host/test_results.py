"""The bytes of all kinds of results, and a commit that is encoded without its session."""

from __future__ import annotations

import gc
import json
import weakref
from typing import Any

import numpy as np
import pytest
from tests.unit.sessions.test_root_session import STABLE, Host, boundary

from slackwater.codec.results import ResultHead
from slackwater.host.results import ResultsWriter
from slackwater.model.records import Gap, Kind, Position, RootState
from slackwater.primitives.deltas import Slice
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.panes import PaneShare
from slackwater.primitives.rows import Rows
from slackwater.protocols.dpc.soutput.answers import (
    Answered,
    Effect,
    EmptyRun,
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Transaction,
    Undo,
)
from slackwater.protocols.dpc.soutput.config import Commit
from slackwater.sessions.events import Received

MS = 1_000
START = 1_458_031_648_000 * MS
GAPS = (Gap("lab", 2), Gap("room", 1))
KEYS = KeyTable()
STATE = RootState("root/climate.1", 1, 19, 4, 0, 0, (Position(0),), ())


def slice_of(*keys: str) -> PaneShare[Any]:
    n = len(keys)
    columns = [np.arange(n, dtype=np.float64).reshape(1, n) + i for i in range(5)]
    return PaneShare(Slice.build(KEYS.indices(keys), columns))


def readings_of(*keys: str) -> PaneShare[Any]:
    stimes = np.arange(len(keys), dtype=np.int64) + START
    return PaneShare(Rows(stimes, KEYS.indices(keys), np.full((1, len(keys)), 1.5)))


def ms(n: int) -> int:
    return START + n * MS


def at(us: int) -> str:
    return f"2016-03-15T08:47:28.{us:06}Z"


EFFECTS: tuple[Effect[PaneShare[Any]], ...] = (
    Undo(5, 3, ms(0), ms(1)),
    GapNote(6, 3, ms(0), ms(1), GAPS),
    StableWindow(7, 9, 3, ms(0), ms(1), START + 1, 2, slice_of("b", 'a"'), GAPS),
    StableWindow(10, 10, 0, ms(1), ms(2), None, 0, None, ()),
    EmptyRun(11, 0, True, ms(2), ms(4), 2, START + 2, ()),
    RecDone(12, 3),
    TentativeWindow(13, 14, 4, ms(4), ms(5), START + 3, 1, slice_of("c"), ("z", "lab"), GAPS[:1]),
    TentativeWindow(15, 15, 4, ms(5), ms(6), None, 0, None, (), ()),
    EmptyRun(16, 4, False, ms(6), ms(9), 3, None, ("lab",), skipped=True),
    StableWindow(17, 18, 0, ms(9), ms(10), START + 4, 1, readings_of("d"), ()),
)  # fmt: skip


def expected(kind: str, seq: int, epoch: int, generation: int, rest: dict[str, Any]) -> bytes:
    of = {"query": "climate", **({"generation": generation} if generation else {}), "part": 1}
    line = {**of, "seq": seq, "kind": kind, "epoch": epoch, **rest, "emitted_at": at(9)}
    return json.dumps(line, separators=(",", ":")).encode()


def window(start: int, end: int) -> dict[str, Any]:
    return {"window_start": at(start * MS), "window_end": at(end * MS)}


def closed(
    label: str, start: int, end: int, windows: int, keys: int, due: int, **other: Any
) -> dict[str, Any]:
    missing = {"missing": other.pop("missing", [])}
    of = {**window(start, end), "windows": windows, "keys": keys, **missing, **other}
    return {"label": label, **of, "due_at": at(due)}


LOST = {"lost": {"lab": 2, "room": 1}}
LAB = {"lost": {"lab": 2}}
LACKS = {"missing": ["lab", "z"]}
UNKNOWN = {"fields": {"t": {"count": 0, "avg": None}}}
# Topic, Kafka key, kind, seq, epoch, and the rest of each record.
LINES: list[tuple[str, str | None, str, int, int, dict[str, Any]]] = [
    ("corrections", None, "undo", 5, 3, {"undo_from": at(0), "undo_to": at(MS)}),
    ("corrections", None, "gap", 6, 3,
     {"stream": "lab,room", "lost": 3, "gap_from": at(0), "gap_to": at(MS)}),
    ("stable", 'a"', "stable", 7, 3,
     {**window(0, 1), "key": 'a"', "fields": {"t": {"count": 1, "avg": 2.0}}, "missing": [],
      **LOST, "due_at": at(1)}),
    ("stable", "b", "stable", 8, 3,
     {**window(0, 1), "key": "b", **UNKNOWN, "missing": [], **LOST, "due_at": at(1)}),
    ("stable", None, "boundary", 9, 3, closed("stable", 0, 1, 1, 2, 1, **LOST)),
    ("stable", None, "boundary", 10, 0, closed("stable", 1, 2, 1, 0, 9)),
    ("stable", None, "boundary", 11, 0, closed("stable", 2, 4, 2, 0, 2)),
    ("corrections", None, "rec_done", 12, 3, {}),
    ("tentative", "c", "tentative", 13, 4,
     {**window(4, 5), "key": "c", **UNKNOWN, **LACKS, **LAB, "due_at": at(3)}),
    ("tentative", None, "boundary", 14, 4, closed("tentative", 4, 5, 1, 1, 3, **LACKS, **LAB)),
    ("tentative", None, "boundary", 15, 4, closed("tentative", 5, 6, 1, 0, 9)),
    ("tentative", None, "boundary", 16, 4,
     closed("tentative", 6, 9, 3, 0, 9, missing=["lab"], skipped=True)),
    ("stable", "d", "stable", 17, 0,
     {**window(9, 10), "stime": at(0), "key": "d", "fields": {"t": 1.5}, "missing": [],
      "due_at": at(4)}),
    ("stable", None, "boundary", 18, 0, closed("stable", 9, 10, 1, 1, 4)),
]  # fmt: skip


@pytest.mark.parametrize("generation", [0, 2])
def test_every_kind_of_result_as_it_stands(generation: int) -> None:
    answered = Answered(5, 3, 0, 0)
    commit = Commit(Transaction(EFFECTS, answered, answered, more=False), STATE, KEYS)
    writer = ResultsWriter(ResultHead("climate", 1, generation), ("t",), ("count", "avg"))
    for more in ("", "Z"):
        KEYS.numbers([f"{more}{generation}"])  # later input: these keys are the first in order
        written = [
            (topic, key, value)
            for topic, lines in writer.lines(commit, START + 9)
            for key, value in lines
        ]
        assert written == [
            (topic, key and key.encode(), expected(kind, seq, epoch, generation, rest))
            for topic, key, kind, seq, epoch, rest in LINES
        ]


def test_a_commit_is_encoded_after_its_session_has_taken_more_input_and_is_gone() -> None:
    """The event loop reads on while a transaction is encoded; the new keys come first in order."""

    def read(offset: int, *keys: str) -> None:
        n = len(keys)
        record = boundary(
            (offset - 1) * 100, offset * 100, kind=Kind.INSERTION, keys=keys, fields=("v",),
            last_id=n - 1, values=(np.arange(float(n)),), key_index=np.arange(n, dtype=np.int32),
            stimes=np.full(n, offset * 100 * MS - 50 * MS),
        )  # fmt: skip
        host.session.take(Received(STABLE, offset, record))

    host = Host().started().begun()
    read(1, "m", "k")
    (commit,) = host.commits(200 * MS)
    writer = ResultsWriter(ResultHead("q", 0), ("v",), ())
    at_once = list(writer.lines(commit, 0))
    assert [key for _, lines in at_once for key, _ in lines] == [b"m", b"k", None]
    read(2, "a", "m", "b")
    assert host.commits(300 * MS) == [], "one transaction at a time"
    session = weakref.ref(host.session)
    host = Host()
    gc.collect()
    assert session() is None
    assert list(writer.lines(commit, 0)) == at_once
