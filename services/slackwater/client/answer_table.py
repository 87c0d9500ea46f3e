"""Makes one table of a query's answers: a row for each window and key.

A tentative answer is in force until its part has answered the window as stable: a part gives stable
answers in the order of windows, and a transaction that gives one for a window with a tentative
answer begins with its UNDO (rule-22). So a tentative answer has been withdrawn if and only if its
window is not after the last one with a stable answer in its part. The topic of corrections is not
needed, and neither is one order over the topics. Without it no time exists at which an UNDO can be
read and what replaces it cannot.

A window is one answer or none. Rows that do not belong to the next boundary, or a window that lacks
some of its rows since retention deleted them, are left out and counted (trace-5).

Rejected: to apply the records one by one as ``answers.py`` does. A million rows would take longer,
and a table has no moment between two records.

Pure: tables in, a table out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from slackwater.codec.result_columns import FIGURE, LINES, Table, figures_of, joined

Kinds = Literal["best", "exact", "all"]
Ints: TypeAlias = npt.NDArray[np.int64]

_UTC: Final = pa.timestamp("us", "UTC")
_BEFORE_ALL: Final = -(2**63)


class PartLines(NamedTuple):
    """The lines of a part's stable and tentative topic, as ``result_columns`` decodes them.

    They were read in this way: the end of the stable topic was asked for before that of the
    tentative one, so what a stable line replaces is there as well.
    """

    stable: Table
    tentative: Table


@dataclass(frozen=True, slots=True)
class AnsweredTo:
    """The end of the last window, us, that parts have answered; None if one has no answer.

    ``complete`` is that of the last window that all parts have answered, ``any`` of one that a part
    has answered.
    """

    complete: int | None
    any: int | None

    @classmethod
    def of(cls, ends: Sequence[int | None]) -> AnsweredTo:
        """Return that of the parts with these ends."""
        known = [end for end in ends if end is not None]
        return cls(
            min(known) if known and len(known) == len(ends) else None, max(known, default=None)
        )


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """The table, and what it cannot show.

    ``incomplete``: answers that were left out since rows are absent. ``skipped``: answers in force
    that have no rows since they have not been computed; each may stand for many windows (rule-20).
    """

    table: Table
    incomplete: int
    skipped: int


class _Windows(NamedTuple):
    """The rows of complete windows of a topic, and its boundaries."""

    rows: Table
    boundaries: Table
    is_complete: npt.NDArray[np.bool_]
    """Of each boundary."""


def answer_table(
    parts: Mapping[int, PartLines], kinds: Kinds, after_us: int | None, until_us: int | None
) -> AnswerTable:
    """Return the answers of windows that end after ``after_us`` and not after ``until_us``.

    None stands for no limit. The rows are in the order of ``window_start`` (``stime`` without a
    window), key, and time of answer. See ``Client.table`` for the columns.
    """
    after = _BEFORE_ALL if after_us is None else after_us
    until = -_BEFORE_ALL - 1 if until_us is None else until_us
    chosen: list[Table] = [LINES.empty_table().append_column("withdrawn", pa.array([], pa.bool_()))]
    incomplete = skipped = 0
    for lines in parts.values():
        stable = _windows(lines.stable, is_tentative=False)
        tentative = _windows(lines.tentative, is_tentative=True)
        stable_end = int(_ints(stable.boundaries, "window_end").max(initial=_BEFORE_ALL))
        for of in (stable, tentative):
            ends = _ints(of.boundaries, "window_end")
            is_asked = (ends > after) & (ends <= until)
            incomplete += int((is_asked & ~of.is_complete).sum())
            if of is tentative:
                in_force = is_asked & (ends > stable_end)
                skipped += int((in_force & _bools(of.boundaries, "skipped")).sum())
        chosen.append(_chosen(stable, after, until, withdrawn_to=None))
        if kinds != "exact":
            standing = _chosen(tentative, after, until, withdrawn_to=stable_end)
            if kinds == "best":
                standing = standing.filter(pc.invert(standing["withdrawn"]))
            chosen.append(standing)
    # The definition of the newest answers gives the order of the columns.
    chosen.sort(key=lambda rows: int(_ints(rows, "generation").max(initial=-1)))
    rows = joined(chosen)
    return AnswerTable(_named(rows, with_errors=kinds == "all"), incomplete, skipped)


def _windows(lines: Table, *, is_tentative: bool) -> _Windows:
    """Return the rows of the windows of a topic that are complete."""
    lines = lines.filter(pa.array(_bools(lines, "tentative") == is_tentative))
    # Seqs rise within a topic. A repetition would be a defect of its writer: the first one counts.
    lines = lines.take(pa.array(np.unique(_ints(lines, "seq"), return_index=True)[1]))
    is_boundary = _bools(lines, "is_boundary")
    rows = lines.filter(pa.array(~is_boundary))
    boundaries = lines.filter(pa.array(is_boundary))
    seqs, ends = _ints(rows, "seq"), _ints(boundaries, "seq")
    keys = _ints(boundaries, "keys")
    if not len(ends):
        return _Windows(rows.slice(0, 0), boundaries, np.zeros(0, np.bool_))
    place = np.searchsorted(ends, seqs)
    at = np.minimum(place, len(ends) - 1)
    is_own = (place < len(ends)) & (seqs >= ends[at] - keys[at])
    for name in ("window_start", "window_end", "epoch", "generation"):
        is_own &= _ints(rows, name) == _ints(boundaries, name)[at]
    is_complete = np.bincount(at[is_own], minlength=len(ends)) == keys
    return _Windows(rows.filter(pa.array(is_own & is_complete[at])), boundaries, is_complete)


def _chosen(of: _Windows, after: int, until: int, withdrawn_to: int | None) -> Table:
    """Return the rows of the windows asked for; ``withdrawn_to`` None: they are stable."""
    ends = _ints(of.rows, "window_end")
    is_asked = (ends > after) & (ends <= until)
    withdrawn = ends <= (_BEFORE_ALL if withdrawn_to is None else withdrawn_to)
    rows = of.rows.append_column("withdrawn", pa.array(withdrawn))
    return rows.filter(pa.array(is_asked))


def _named(rows: Table, *, with_errors: bool) -> Table:
    """Return the rows in order, with the columns of the public table."""
    rows = rows.combine_chunks()
    figures = figures_of(rows)
    has_stime = rows.num_rows > 0 and rows["stime"].null_count == 0
    codes = _key_codes(rows)
    stimes = _ints(rows, "stime") if has_stime else np.zeros(rows.num_rows, np.int64)
    starts = _ints(rows, "window_start")
    order = np.lexsort((_ints(rows, "seq"), codes, stimes, starts))
    rows = rows.take(pa.array(order)).combine_chunks()
    withheld = ("generation", "tentative", "missing", "lost", "latency_ms")
    columns: dict[str, Any] = {
        name: rows[name].cast(_UTC)
        for name in ("window_start", "window_end", *(["stime"] if has_stime else []))
    }
    columns["key"] = rows["key"]
    taken = {*columns, *withheld, "withdrawn"}
    names = {figure: _free(figure, taken) for figure in figures}
    columns |= {names[figure]: rows[FIGURE + figure] for figure in figures}
    latency_us = _ints(rows, "emitted_at") - _ints(rows, "due_at")
    columns |= {name: rows[name] for name in withheld[:-1]}
    columns["latency_ms"] = pa.array(latency_us / 1e3)
    if with_errors:
        columns["withdrawn"] = rows["withdrawn"]
        # After sorting, a withdrawn row and the exact one of its key are neighbours.
        follows = _is_pair(starts[order], stimes[order], codes[order], _bools(rows, "withdrawn"))
        for figure in figures:
            error = _errors(rows[FIGURE + figure].combine_chunks(), follows)
            columns[_free(f"{names[figure]}_error", {*columns})] = error
    return pa.table(columns)


def _free(name: str, taken: set[str]) -> str:
    """Return a name for a column that no other one has."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _key_codes(rows: Table) -> Ints:
    """Return the place of each row's key among all keys in alphabetical order."""
    encoded = rows["key"].combine_chunks().dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.array_sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    codes: Ints = rank[encoded.indices.to_numpy(zero_copy_only=False)]
    return codes


def _is_pair(
    starts: Ints, stimes: Ints, codes: Ints, withdrawn: npt.NDArray[np.bool_]
) -> npt.NDArray[np.bool_]:
    """Return which rows are withdrawn ones that one exact row of the same place follows.

    Readings of one key and time are several rows of one place, and no pairs.
    """
    size = len(starts)
    same = np.zeros(size + 2, np.bool_)  # whether a row is at the place of the one before it
    for of in (starts, stimes, codes):
        assert len(of) == size
    if size:
        same[1:size] = (
            (starts[1:] == starts[:-1]) & (stimes[1:] == stimes[:-1]) & (codes[1:] == codes[:-1])
        )
    follower = np.append(withdrawn[1:], True) if size else withdrawn
    pair: npt.NDArray[np.bool_] = (
        withdrawn & ~follower & ~same[:size] & same[1 : size + 1] & ~same[2 : size + 2]
    )
    return pair


def _errors(figure: Any, is_pair: npt.NDArray[np.bool_]) -> Any:
    """Return the figure less that of the next row where they are a pair, null elsewhere."""
    after = pa.concat_arrays([figure.slice(1), pa.nulls(min(len(figure), 1), figure.type)])
    difference = pc.subtract(figure, after)
    return pc.if_else(pa.array(is_pair), difference, pa.scalar(None, figure.type))


def _ints(table: Table, name: str) -> Ints:
    """Return a column; nulls are 0."""
    found: Ints = pc.fill_null(table[name], 0).to_numpy()
    return found


def _bools(table: Table, name: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = table[name].to_numpy()
    return found
