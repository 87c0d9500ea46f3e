"""The changes of alerts that results lead to, computed plainly from all of them at once.

It shares nothing with the product but the conditions' texts, which it evaluates as Python. A count
is found by looking back over the rows, and the end of a failure by REC_DONE.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import orjson

from slackwater.model.alerts import AlertSpec

Truth = bool | None
Values = Mapping[str, Any]


def _both(one: Truth, other: Truth) -> Truth:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def _above(value: float | None, limit: float) -> Truth:
    return None if value is None else value > limit


TRUTHS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[str, Values], Truth]]]] = {
    "t_avg > 26": (("t_avg",), lambda _, v: _above(v["t_avg"], 26)),
    "t_avg <= 26": (
        ("t_avg",),
        lambda _, v: None if v["t_avg"] is None else v["t_avg"] <= 26,
    ),
    "t_avg > 26 AND h_max < 50": (
        ("h_max", "t_avg"),
        lambda _, v: _both(_above(v["t_avg"], 26), None if v["h_max"] is None else v["h_max"] < 50),
    ),
    "key <> 'b' AND t_avg > 25": (
        ("t_avg",),
        lambda key, v: _both(key != "b", _above(v["t_avg"], 25)),
    ),
}


class Expected(NamedTuple):
    """A change of an alert: it began at this window."""

    state: str
    window_start: str
    tentative: bool
    values: Values
    exact: Values | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    seq: int
    is_exact: bool
    window_start: str
    truth: Truth
    values: Values
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    """A window, or a run: its boundary with its rows by key; of a key the last one."""

    boundary: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]


def answers(results: Iterable[bytes], deleted: frozenset[int]) -> Iterator[_Answer | str]:
    """Yield answered windows, and ``rec_done``; rows without their boundary are left out."""
    rows: list[Mapping[str, Any]] = []
    next_seq = 0
    for result in map(orjson.loads, results):
        if result["seq"] in deleted:
            continue
        if result["seq"] > next_seq:
            rows = []
        next_seq = result["seq"] + 1
        if result["kind"] in ("stable", "tentative"):
            rows.append(result)
        elif result["kind"] == "boundary":
            yield _Answer(result, rows)
            rows = []
        elif result["kind"] == "rec_done":
            yield "rec_done"


def _values(row: Mapping[str, Any]) -> Values:
    of = row["fields"]
    if "t" not in of:
        return {"t_avg": of["t_avg"], "h_max": of["h_max"]}
    return {"t_avg": of["t"]["avg"], "h_max": of["h"]["max"]}


def expected_of(
    rule: AlertSpec, results: Iterable[bytes], deleted: frozenset[int], slide_us: int
) -> dict[str, list[Expected]]:
    """Return the changes of a rule on rows in one part, by key."""
    found: dict[str, _Key] = {}
    assert rule.when is not None
    reads, truth = TRUTHS[rule.when]
    fork_seq = None
    early_to_us = 0
    for answer in answers(results, deleted):
        if isinstance(answer, str):
            fork_seq = None
            continue
        boundary = answer.boundary
        is_exact = boundary["label"] == "stable"
        last_start_us = us_of(boundary["window_start"]) + (boundary["windows"] - 1) * slide_us
        if not is_exact:
            early_to_us = last_start_us
            if fork_seq is None:
                fork_seq = boundary["seq"] - boundary["keys"]
        for row in answer.rows:
            values = _values(row)
            of = found.setdefault(row["key"], _Key(rule))
            of.take(
                _Row(
                    row["seq"],
                    is_exact,
                    row["window_start"],
                    truth(row["key"], values),
                    {name: values[name] for name in reads},
                    tuple(row["missing"]),
                ),
                fork_seq,
            )
        if is_exact:
            for key, of in found.items():
                own = [_values(row) for row in answer.rows if row["key"] == key]
                exact = {name: own[-1][name] for name in reads} if own else None
                of.judge(last_start_us, boundary, exact)
            if deleted and last_start_us >= early_to_us:
                fork_seq = None  # retention may have deleted REC_DONE
    return {key: of.changes for key, of in found.items()}


class _Key:
    def __init__(self, rule: AlertSpec) -> None:
        self._rule = rule
        self._rows: list[_Row] = []
        self.changes: list[Expected] = []
        self._standing: Expected | None = None
        self._early: Expected | None = None

    def take(self, row: _Row, fork_seq: int | None) -> None:
        if not row.is_exact and self._rule.tentative == "wait":
            return
        self._rows.append(row)
        if row.truth is None:
            return
        if row.is_exact:
            if row.truth and self._standing is None and self._run([*self._exact()]):
                self._standing = self._begin(row)
            elif not row.truth and self._standing is not None:
                self.changes.append(self._standing._replace(state="ended"))
                self._standing = None
        elif row.truth and self._standing is None and self._early is None:
            assert fork_seq is not None
            if self._run(self._live(fork_seq)):
                self._early = self._begin(row)

    def judge(self, last_start_us: int, boundary: Mapping[str, Any], exact: Values | None) -> None:
        """End a tentative alert when the exact answers have reached its window."""
        early = self._early
        if early is None or us_of(early.window_start) > last_start_us:
            return
        is_own = boundary["windows"] == 1 and early.window_start == boundary["window_start"]
        state = "withdrawn" if self._standing is None else "confirmed"
        self.changes.append(early._replace(state=state, exact=exact if is_own else None))
        self._early = None

    def _begin(self, row: _Row) -> Expected:
        began = Expected(
            "firing", row.window_start, not row.is_exact, row.values, None, row.missing
        )
        self.changes.append(began)
        return began

    def _exact(self) -> Iterator[_Row]:
        return (row for row in self._rows if row.is_exact)

    def _live(self, fork_seq: int) -> list[_Row]:
        """Return the rows of the live line: exact ones up to the fork, then tentative ones."""
        early = [row for row in self._rows if not row.is_exact and row.seq >= fork_seq]
        return [*(row for row in self._exact() if row.seq < fork_seq), *early]

    def _run(self, rows: Sequence[_Row]) -> bool:
        run = 0
        for row in reversed(rows):
            if row.truth is False:
                break
            run += row.truth is True
        return run >= self._rule.windows


def expected_of_stream(
    rule: AlertSpec, results: Iterable[bytes], deleted: frozenset[int]
) -> list[tuple[str, str]]:
    """Return the changes of a rule on a stream: the state, and since when it was missing."""
    assert rule.missing_us is not None
    found: list[tuple[str, str]] = []
    complete: list[str] = []
    episode: list[Mapping[str, Any]] = []
    stands = ""
    for answer in answers(results, deleted):
        if isinstance(answer, str):
            continue
        boundary = answer.boundary
        lacks = rule.stream in boundary["missing"]
        lacking = [b for b in episode if rule.stream in b["missing"]]
        if not lacks:
            complete.append(boundary["window_end"])
            if all(boundary["window_end"] >= b["window_end"] for b in lacking):
                found += [("ended", stands)] if stands else []
                episode, stands = [], ""
            elif episode:
                episode.append(boundary)
            continue
        episode.append(boundary)
        first = episode[0]
        before = complete[: len(complete) - (len(episode) - len(lacking) - 1)]
        began = min(max(before, default=first["window_start"]), first["window_end"])
        during = [b["window_end"] for b in episode if rule.stream not in b["missing"]]
        since = max([began, *during])
        if not stands and us_of(boundary["window_end"]) - us_of(since) >= rule.missing_us:
            stands = since
            found.append(("firing", since))
    return found


def us_of(text: str) -> int:
    """Return a time of results in us."""
    return round(datetime.fromisoformat(text).timestamp() * 1e6)
