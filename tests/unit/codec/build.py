"""Records of every schema for tests of the codec, and their comparison."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from slackwater import codec
from slackwater.model.heads import Head, LogHead, Noted, PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import (
    NO_EPOCH,
    DeltaRecord,
    Gap,
    Heartbeat,
    HeartbeatPart,
    Hole,
    Kind,
    LogPosition,
    LogState,
    OrderedRecord,
    OrdererState,
    Position,
    Ragged,
    RegistryRecord,
    RootState,
    SourceColumns,
    SourcePosition,
    SourceRecord,
    StreamPositions,
    type_f64,
)
from slackwater.primitives.figures import FIGURE_NAMES

KINDS = {name: name.removeprefix("wide_") for name in codec.SCHEMAS}
"""Schema -> kind of record; a delta and an ordered record have two schemas."""
ENCODE: dict[str, Callable[[Any], bytes]] = {
    name: getattr(codec, f"encode_{kind}") for name, kind in KINDS.items()
}
DECODE: dict[str, Callable[..., Any]] = {
    name: getattr(codec, f"decode_{kind}") for name, kind in KINDS.items()
}

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
times = st.integers(-(2**60), 2**60)
texts = st.text(max_size=12)
key_lists = st.lists(st.text(min_size=1, max_size=9), max_size=30, unique=True).map(tuple)
doubles = st.floats(width=64)
gaps = st.lists(st.builds(Gap, texts, longs), max_size=3).map(tuple)
names = st.lists(texts, max_size=3).map(tuple)


def column(draw: DrawFn, size: int) -> type_f64:
    return np.array(draw(st.lists(doubles, min_size=size, max_size=size)), np.float64)


@st.composite
def source_records(draw: DrawFn) -> SourceRecord:
    n = draw(st.integers(0, 20))
    first = draw(st.integers(0, 2**61))
    boundary = draw(times)
    low = high = boundary
    columns = None
    if n:
        span = draw(st.sampled_from([0, 1, 1000, 2**24 - 1, 2**24, 2**40]))
        offsets = draw(st.lists(st.integers(0, span), min_size=n, max_size=n))
        stimes = np.array(offsets, np.int64) + draw(times)
        keys = draw(key_lists.filter(bool))
        index = draw(st.lists(st.integers(0, len(keys) - 1), min_size=n, max_size=n))
        fields = draw(names)
        columns = SourceColumns(
            stimes=stimes,
            key_index=np.array(index, np.int32),
            keys=keys,
            fields=fields,
            values=tuple(column(draw, n) for _ in fields),
        )
        low, high = int(stimes.min()), int(stimes.max())
    return SourceRecord(
        kind=draw(st.sampled_from(Kind)),
        stream=draw(texts),
        inc=draw(longs),
        first_id=first,
        last_id=first + n - 1,
        boundary=boundary,
        stime_min=low,
        stime_max=high,
        input_position=draw(longs),
        spool=draw(texts),
        gap=draw(gaps),
        columns=columns,
        partitions=draw(longs) if columns is None else 0,
        input_epoch=draw(st.integers(NO_EPOCH, 2**31 - 1)),
    )


def _place(draw: DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(Kind))
    start = draw(times)
    pieces = draw(st.integers(1, 9))
    return {
        "kind": kind,
        "child": draw(ints),
        "replica": draw(ints),
        "inc": draw(longs),
        "bucket_start": start,
        "bucket_end": start + draw(st.integers(0, 2**40)),
        "piece": draw(st.integers(0, pieces - 1)),
        "pieces": pieces,
        "first_id": draw(longs),
        "last_id": draw(longs),
        "frontier": Position(draw(longs), draw(st.integers(0, 9))) if kind == Kind.START else None,
        "missing": draw(names),
        "gap": draw(gaps),
        "keys": draw(key_lists),
        "fields": draw(names),
    }


def _states(draw: DrawFn, place: dict[str, Any]) -> dict[str, Ragged]:
    """Return one state or more for these fields and keys."""
    fields, keys = len(place["fields"]), len(place["keys"])
    found = {}
    for name in draw(st.lists(texts, min_size=1, max_size=2, unique=True)):
        runs = [
            draw(st.lists(st.integers(0, 3), min_size=keys, max_size=keys)) for _ in range(fields)
        ]
        entries = [np.nan_to_num(column(draw, sum(run))) for run in runs]
        lengths = tuple(np.array(run, np.float64) for run in runs)
        found[name] = Ragged(lengths, tuple(entries), tuple(-each for each in entries))
    return found


@st.composite
def ordered_records(draw: DrawFn, *, is_wide: bool = False) -> OrderedRecord:
    place = _place(draw)
    keys = len(place["keys"])
    if is_wide:
        place["states"] = _states(draw, place)
    if keys and draw(st.booleans()):
        return OrderedRecord(**place, **_rows(draw, keys, place["fields"]))
    runs = draw(st.lists(st.integers(0, 4), min_size=keys, max_size=keys))
    offsets = np.concatenate([[0.0], np.cumsum(runs, dtype=np.float64)])
    values = tuple(column(draw, int(offsets[-1])) for _ in place["fields"])
    return OrderedRecord(**place, offsets=offsets, values=values)


def _rows(draw: DrawFn, keys: int, fields: tuple[str, ...]) -> dict[str, Any]:
    n = draw(st.integers(1, 20))
    span = draw(st.sampled_from([0, 1, 1000, 2**24 - 1, 2**24, 2**40]))
    offsets = draw(st.lists(st.integers(0, span), min_size=n, max_size=n))
    index = draw(st.lists(st.integers(0, keys - 1), min_size=n, max_size=n))
    return {
        "stimes": np.array(offsets, np.int64) + draw(times),
        "key_index": np.array(index, np.int32),
        "values": tuple(column(draw, n) for _ in fields),
    }


@st.composite
def delta_records(draw: DrawFn, *, is_wide: bool = False) -> DeltaRecord:
    place = _place(draw)
    shape = (len(place["fields"]), len(place["keys"]))

    def figures(names: Iterable[str]) -> dict[str, Any]:
        return {name: column(draw, shape[0] * shape[1]).reshape(shape) for name in names}

    others = draw(st.lists(texts, min_size=1, max_size=3, unique=True)) if is_wide else ()
    return DeltaRecord(
        **place,
        seq=draw(longs),
        keys_hash=draw(longs),
        **figures(FIGURE_NAMES),
        others=figures(others),
        states=_states(draw, place) if is_wide else {},
    )


source_positions = st.builds(SourcePosition, longs, longs, longs, longs)
positions = st.builds(Position, longs, ints)
log_positions = st.builds(LogPosition, longs, longs, longs, positions)
stream_positions = st.builds(
    StreamPositions, texts, source_positions, source_positions, source_positions
)
logs = st.builds(LogState, ints, ints, ints, log_positions, log_positions, longs)

exact = st.integers(-(2**53), 2**53)
refs = st.builds(PaneRef, ints, exact, exact, ints, longs)
log_heads = st.builds(LogHead, ints, ints, ints, log_positions, log_positions, longs)


@st.composite
def pane_records(draw: DrawFn) -> PaneRecord:
    place = {"fields": draw(names.filter(bool)), "keys": draw(key_lists)}
    shape = (draw(st.integers(1, 3)), len(place["fields"]), len(place["keys"]))
    figures = column(draw, shape[0] * shape[1] * shape[2]).reshape(shape)
    found = PaneColumns(place["keys"], figures, _states(draw, place))
    return PaneRecord(draw(refs), draw(ints), found)


@st.composite
def merged_records(draw: DrawFn) -> MergedRecord:
    pane, pieces = draw(pane_records()), draw(st.integers(0, 4))
    start = draw(st.integers(-(2**50), 2**50))
    pane = dataclasses.replace(pane, ref=pane.ref._replace(start=start, pieces=pieces))
    pane = dataclasses.replace(pane, piece=draw(st.integers(0, max(pieces - 1, 0))))
    end = start + draw(st.integers(1, 2**50))
    return MergedRecord(pane, end, draw(st.lists(log_positions, max_size=3).map(tuple)))


@st.composite
def heads(draw: DrawFn) -> Head:
    children = draw(st.integers(0, 3))
    noted = st.lists(st.builds(Noted, longs, longs, gaps), max_size=2).map(tuple)
    return Head(
        term=draw(longs),
        number=draw(longs),
        next_seq=draw(longs),
        epoch=draw(longs),
        stable_from=draw(longs),
        answered_to=draw(longs),
        frontiers=tuple(draw(longs) for _ in range(children)),
        noted=tuple(draw(noted) for _ in range(children)),
        panes=draw(st.lists(refs, max_size=3).map(tuple)),
        logs=draw(st.lists(log_heads, max_size=3).map(tuple)),
    )


RECORDS: dict[str, SearchStrategy[Any]] = {
    "pane": pane_records(),
    "head": heads(),
    "merged": merged_records(),
    "source": source_records(),
    "ordered": ordered_records(),
    "delta": delta_records(),
    "wide_delta": delta_records(is_wide=True),
    "wide_ordered": ordered_records(is_wide=True),
    "orderer_state": st.builds(
        OrdererState,
        texts,
        *[longs] * 5,
        st.lists(stream_positions, max_size=4).map(tuple),
    ),
    "root_state": st.builds(
        RootState,
        texts,
        *[longs] * 5,
        st.lists(positions, max_size=3).map(tuple),
        st.lists(logs, max_size=3).map(tuple),
        kept_from=st.lists(longs, max_size=3).map(tuple),
        moved_to=st.lists(longs, max_size=3).map(tuple),
    ),
    "heartbeat": st.builds(
        Heartbeat,
        texts,
        longs,
        longs,
        longs,
        longs,
        st.booleans(),
        st.dictionaries(texts, texts, max_size=3),
        st.lists(st.builds(Hole, texts, ints, longs), max_size=3).map(tuple),
        st.dictionaries(texts, longs, max_size=3),
        st.lists(
            st.builds(
                HeartbeatPart,
                texts,
                longs,
                longs,
                st.booleans(),
                st.dictionaries(texts, texts, max_size=3),
                st.lists(st.builds(Hole, texts, ints, longs), max_size=2).map(tuple),
                st.dictionaries(texts, longs, max_size=3),
            ),
            max_size=3,
        ).map(tuple),
    ),
    "registry": st.builds(RegistryRecord, texts, texts),
}


def plain(value: Any) -> Any:
    """Return a record as tuples in which NaN equals NaN and a dtype is part of an array."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if hasattr(value, "load"):
        value = value.load()
    if dataclasses.is_dataclass(value):
        return tuple(plain(getattr(value, field.name)) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value
