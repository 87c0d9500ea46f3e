"""Encodes a query's results as lines of JSON: rows, boundaries, undo, rec_done and gap.

Users and their tools read these, so names, order and spelling are fixed. Every object begins with
``query, part, seq, kind, epoch``, with ``generation`` after ``query`` if it is 1 or more, followed
by:

- a row (kind ``stable`` or ``tentative``): ``window_start, window_end, key, fields, missing``,
  ``lost: {stream: n}`` (only if retention deleted readings), ``overflow`` (only if figures of these
  fields are null although they have values), ``due_at, emitted_at``; for a query
  without a window a row is a reading, with its ``stime`` after ``window_end`` and one number or
  null per field;
- a ``boundary``: ``label, window_start, window_end, windows, keys, missing``, ``lost`` as above,
  ``skipped: true`` (only if overdue windows were not computed: the absence of rows does not mean an
  empty window), ``due_at, emitted_at``;
- ``undo``: ``undo_from, undo_to, emitted_at``; ``rec_done``: ``emitted_at``;
- ``gap``: ``stream, lost, gap_from, gap_to, emitted_at``.

Times are text such as ``2016-03-15T08:47:28.545000Z``. ``count`` is an integer; the other figures
are JSON numbers, or null if not finite.

A window may have many rows, so figures are computed as columns, each column is converted to text by
one call of orjson, and a template is filled from these texts for each row. One ``orjson.dumps`` for
each row would cost about twice as much, most of it for the dict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np
import orjson

from slackwater.model.errors import MalformedRecordError
from slackwater.model.records import Gap, type_f64, type_i64
from slackwater.model.row_fields import OfFields, shown_of
from slackwater.primitives.aggregates import AggregateColumns, columns_of, overflowed
from slackwater.protocols.dpc.soutput.answers import (
    Effect,
    EmptyRun,
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)

Label = Literal["stable", "tentative"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US: Final = timedelta(microseconds=1)
_US_MIN: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _US
_US_MAX: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _US


@lru_cache(maxsize=4096)
def format_time(us: int) -> str:
    """Format microseconds since the epoch as ISO 8601 in UTC, always with six decimals.

    Outside the years 1 to 9999 the year has a sign, as ISO 8601 permits by agreement.
    """
    if _US_MIN <= us <= _US_MAX:
        return f"{(_EPOCH + us * _US).isoformat(timespec='microseconds')[:-6]}Z"
    text = str(np.datetime64(us, "us"))
    return f"{text}Z" if text.startswith("-") else f"+{text}Z"


def parse_time(text: str) -> int:
    """Parse the output of ``format_time``; raises ``ValueError``."""
    if text[:1] in ("+", "-"):
        return int(np.datetime64(text.removeprefix("+").removesuffix("Z"), "us").astype(np.int64))
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    return (moment - _EPOCH) // _US


@dataclass(frozen=True, slots=True)
class ReadingColumns:
    """Rows of a query without a window: ``stimes`` (n,) and ``values`` (fields, n)."""

    stimes: type_i64
    values: type_f64


@dataclass(frozen=True, slots=True)
class ResultHead:
    """What each result of a part begins with; ``generation`` is in it if it is 1 or more."""

    query: str
    part: int
    generation: int = 0

    def of(self, result: Effect[Any], kind: str, seq: int) -> dict[str, Any]:
        """Return the first members of a result."""
        generation = {"generation": self.generation} if self.generation else {}
        of = {"query": self.query, **generation, "part": self.part}
        return {**of, "seq": seq, "kind": kind, "epoch": result.epoch}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRows:
    """The rows of ``window``, before encoding: one for each of ``keys``.

    ``figures`` has the figures of each key or, without a window, the readings in order.
    ``of_fields`` are the aggregates of each field, if they differ.
    ``emitted_at`` is wall time in us.
    """

    head: ResultHead
    window: StableWindow[Any] | TentativeWindow[Any]
    keys: Sequence[str]
    fields: Sequence[str]
    figures: AggregateColumns | ReadingColumns
    aggregate: Sequence[str] = ()
    of_fields: OfFields = ()
    emitted_at: int

    @property
    def shown(self) -> OfFields:
        """The fields of a row with the aggregates of each."""
        return shown_of(self.fields, self.aggregate, self.of_fields)


def encode_rows(
    answer: ResultRows, start: int = 0, stop: int | None = None
) -> list[tuple[bytes, bytes]]:
    """Return (Kafka key, value) of the rows ``start`` to ``stop``, exclusive (default: all).

    A caller may encode many rows in several calls, to bound the time of each. Row i has the seq
    ``window.first_seq + i`` in any case.
    """
    stop = len(answer.keys) if stop is None else min(stop, len(answer.keys))
    if start >= stop:
        return []
    kafka_keys, key_texts = _key_texts(answer.keys[start:stop])
    numbers, overflow = _number_texts(answer, start, stop)
    columns = [key_texts, *numbers, *overflow]
    if isinstance(answer.figures, ReadingColumns):
        columns.insert(0, _time_texts(answer.figures.stimes[start:stop]))
    first = answer.window.first_seq
    seqs = range(first + start, first + stop)
    template = _row_template(answer, overflow=bool(overflow))
    values = map(template.__mod__, zip(seqs, *columns, strict=True))
    return list(zip(kafka_keys, values, strict=True))


def _time_texts(times: type_i64) -> list[bytes]:
    """Apply ``format_time`` to each time, vectorised for most of them."""
    if len(times) and not (int(times.min()) >= _US_MIN and int(times.max()) <= _US_MAX):
        return [format_time(us).encode() for us in times.tolist()]
    texts = np.datetime_as_string(times.astype("datetime64[us]"), unit="us", timezone="UTC")
    return texts.astype("S").tolist()  # type: ignore[no-any-return]


def _key_texts(keys: Sequence[str]) -> tuple[list[bytes], list[bytes]]:
    """Return each key in UTF-8, and as JSON without its quotes."""
    text = orjson.dumps(list(keys))[2:-2]
    if b"\\" not in text:
        # Nothing is escaped, so no key contains a quote, and the text can be split.
        texts = text.split(b'","')
        return texts, texts
    return [key.encode() for key in keys], [orjson.dumps(key)[1:-1] for key in keys]


def _number_texts(
    answer: ResultRows, start: int, stop: int
) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """Return a list of JSON numbers for each field and aggregate, and ``overflow`` (none or one).

    ``overflow`` is there if one of the rows has it, and empty in the others.
    """
    overflow: list[list[bytes]] = []
    if isinstance(answer.figures, ReadingColumns):
        return [_texts(values) for values in answer.figures.values[:, start:stop]], overflow
    figures = answer.figures.cut(start, stop)
    with np.errstate(all="ignore"):  # overflow and undefined values become null
        columns = dict(zip(answer.aggregate, columns_of(figures, answer.aggregate), strict=True))
    places = {field: place for place, field in enumerate(answer.fields)}
    shown = [
        (places[field], names, [columns[name][places[field]] for name in names])
        for field, names in answer.shown
    ]
    texts = [_texts(column) for _, _, of_field in shown for column in of_field]
    if any(b"null" in text for text in texts):
        counts = figures.count
        found = np.stack([overflowed(counts[at], names, of) for at, names, of in shown])
        if found.any():
            names = [field for field, _ in answer.shown]
            overflow.append([_overflow_text(names, row) for row in found.T])
    return texts, overflow


def _texts(column: np.ndarray[Any, Any]) -> list[bytes]:
    """Return the numbers of a column as JSON."""
    packed = np.ascontiguousarray(column)
    return orjson.dumps(packed, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",")


def _overflow_text(fields: Sequence[str], found: Iterable[bool]) -> bytes:
    """Return the member ``overflow`` of a row, empty if no field has overflowed."""
    names = [name for name, here in zip(fields, found, strict=True) if here]
    return b',"overflow":' + orjson.dumps(names) if names else b""


def _row_template(answer: ResultRows, *, overflow: bool) -> bytes:
    """Return a row template with placeholders for seq, key, each figure and ``overflow``."""
    blank = "\0"
    window, label = answer.window, label_of(answer.window)
    rows = isinstance(answer.figures, ReadingColumns)
    fields: dict[str, Any] = (
        dict.fromkeys(answer.fields, blank)
        if rows
        else {field: dict.fromkeys(names, blank) for field, names in answer.shown}
    )
    row: dict[str, Any] = {
        **answer.head.of(window, label, 1),
        "window_start": format_time(window.window_start),
        "window_end": format_time(window.window_end),
        **({"stime": blank} if rows else {}),
        "key": blank,
        "fields": fields,
        "missing": sorted(window.missing),
        **_lost(window.gap),
    }
    if overflow:
        row["overflow"] = blank
    row["due_at"] = _due_at(window, answer.emitted_at)
    row["emitted_at"] = format_time(answer.emitted_at)
    text = orjson.dumps(row).replace(b"%", b"%%")
    for name in (b"stime", b"key"):
        text = text.replace(b'"%b":"\\u0000"' % name, b'"%b":"%%b"' % name, 1)
    if overflow:
        # The last one: a field may have this name.
        head, _, tail = text.rpartition(b',"overflow":"\\u0000"')
        text = head + b"%b" + tail
    text = text.replace(b'"\\u0000"', b"%b")
    return text.replace(b'"seq":1,', b'"seq":%d,', 1)


def label_of(answer: StableWindow[Any] | TentativeWindow[Any] | EmptyRun) -> Label:
    """Return whether an answer is stable or tentative; its topic has the same name."""
    return "stable" if answer.stable else "tentative"


def encode_boundary(
    head: ResultHead,
    answer: StableWindow[Any] | TentativeWindow[Any] | EmptyRun,
    emitted_at: int,
) -> bytes:
    """Encode the boundary of a window's rows, or of a run of empty or skipped windows.

    ``lost`` is in the rows too, but a window that lost all its readings has no rows.
    """
    return _encode(
        head.of(answer, "boundary", answer.seq),
        emitted_at,
        label=label_of(answer),
        window_start=format_time(answer.window_start),
        window_end=format_time(answer.window_end),
        windows=answer.windows,
        keys=answer.rows,
        missing=sorted(answer.missing),
        **_lost(answer.gap),
        **({"skipped": True} if answer.skipped else {}),
        due_at=_due_at(answer, emitted_at),
    )


def encode_undo(head: ResultHead, undo: Undo, emitted_at: int) -> bytes:
    """Encode an UNDO of the tentative answers to the windows from ``undo_from`` to ``undo_to``."""
    return _encode(
        head.of(undo, "undo", undo.seq),
        emitted_at,
        undo_from=format_time(undo.undo_from),
        undo_to=format_time(undo.undo_to),
    )


def encode_rec_done(head: ResultHead, done: RecDone, emitted_at: int) -> bytes:
    """Encode REC_DONE: all tentative answers up to its epoch have been replaced."""
    return _encode(head.of(done, "rec_done", done.seq), emitted_at)


def encode_gap(head: ResultHead, note: GapNote, emitted_at: int) -> bytes:
    """Encode a gap: retention deleted readings of these event times."""
    return _encode(
        head.of(note, "gap", note.seq),
        emitted_at,
        stream=",".join(gap.stream for gap in note.gap),
        lost=sum(gap.lost for gap in note.gap),
        gap_from=format_time(note.window_start),
        gap_to=format_time(note.window_end),
    )


def _encode(head: dict[str, Any], emitted_at: int, **members: object) -> bytes:
    return orjson.dumps({**head, **members, "emitted_at": format_time(emitted_at)})


def _lost(gaps: Iterable[Gap]) -> dict[str, dict[str, int]]:
    """Return the member ``lost``: by stream, how many readings retention deleted; none if none."""
    lost: Counter[str] = Counter()
    for stream, readings in gaps:
        lost[stream] += readings
    return {"lost": dict(lost)} if lost else {}


def _due_at(answer: StableWindow[Any] | TentativeWindow[Any] | EmptyRun, emitted_at: int) -> str:
    """Return the normal time; with ``clock: data`` it may be unknown, and the answer is in time."""
    return format_time(emitted_at if answer.due_at is None else answer.due_at)


_HEAD: Final[Mapping[str, type]] = {
    "query": str,
    "part": int,
    "seq": int,
    "kind": str,
    "epoch": int,
    "emitted_at": str,
}
_WINDOW: Final[Mapping[str, type]] = {
    "window_start": str,
    "window_end": str,
    "missing": list,
    "due_at": str,
}
_ROW: Final[Mapping[str, type]] = {**_WINDOW, "key": str, "fields": dict}
_KINDS: Final[Mapping[str, Mapping[str, type]]] = {
    "stable": _ROW,
    "tentative": _ROW,
    "boundary": {**_WINDOW, "label": str, "windows": int, "keys": int},
    "undo": {"undo_from": str, "undo_to": str},
    "rec_done": {},
    "gap": {"stream": str, "lost": int, "gap_from": str, "gap_to": str},
}


def parse_result(value: bytes, where: object = "") -> dict[str, Any]:
    """Parse a result into a dict in which the fields of its kind exist with the right types.

    Unknown fields are kept, since a later version may add some.

    Raises:
        MalformedRecordError: the value is not such a result.
    """
    try:
        result = orjson.loads(value)
    except orjson.JSONDecodeError as error:
        raise MalformedRecordError(where, f"not JSON: {error}") from error
    if not isinstance(result, dict) or result.get("kind") not in _KINDS:
        raise MalformedRecordError(where, "not a result: unknown kind")
    for name, kind in (*_HEAD.items(), *_KINDS[result["kind"]].items()):
        found = result.get(name)
        if not isinstance(found, kind) or isinstance(found, bool):
            raise MalformedRecordError(
                where, f"a {result['kind']} whose {name} is {found!r}, not {kind.__name__}"
            )
    return result


COUNT_MAX: Final = 2**53
"""Upper bound of a result's seqs and counts."""
_TIMES: Final[Mapping[str, tuple[str, ...]]] = {
    "stable": (),
    "tentative": (),
    "boundary": ("window_start", "window_end", "due_at", "emitted_at"),
    "undo": ("undo_from", "undo_to", "emitted_at"),
    "rec_done": ("emitted_at",),
    "gap": ("gap_from", "gap_to", "emitted_at"),
}


def check_result(result: Mapping[str, Any], query: str, part: int, where: object = "") -> None:
    """Raise ``MalformedRecordError`` if no root of this query part can have written the result.

    Any client with write access to the topic may have written it. Of rows, which are many, only the
    fields that every reader uses are checked.
    """
    kind = result["kind"]
    if (result["query"], result["part"]) != (query, part):
        raise MalformedRecordError(where, f"a {kind} of another query or part")
    counts = [result["seq"], result["epoch"]]
    if kind == "boundary":
        counts += [result["keys"], result["windows"] - 1]
        if result["label"] not in ("stable", "tentative"):
            raise MalformedRecordError(where, "a boundary with another label")
    if not all(0 <= n < COUNT_MAX for n in counts):
        raise MalformedRecordError(where, f"a {kind} with numbers out of range")
    names = _TIMES[kind]
    if "stime" in result:
        names = ("stime",)
    for name in names:
        try:
            parse_time(result[name])
        except (TypeError, ValueError) as error:
            raise MalformedRecordError(where, f"{name}: {error}") from error
