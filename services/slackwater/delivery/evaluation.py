"""Evaluates alert rules over batches of results. Batches in, records out.

A window is evaluated at its boundary: the condition over the columns of its rows, then each key for
which it is true, or of which something is known. What is known of a key that has no alert and no
count is nothing, so memory follows the alerts, not the keys.

The evaluator is built from the records of its topic, which is the only way to build it. The records
of a batch and the position after it are written in one transaction: an evaluator that begins at
that position makes the records that this one would have made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from slackwater.codec.results import parse_time
from slackwater.delivery.batches import (
    DeliveryBatch,
    LastStart,
    PartPosition,
    ResultRecord,
    last_start,
)
from slackwater.delivery.missing import missing_changes
from slackwater.delivery.progress import AlertChange, KeyProgress, counted
from slackwater.delivery.records import (
    AlertRecord,
    AlertState,
    DeliveryPosition,
    DeliveryRecord,
    Firing,
    alert_id,
)
from slackwater.delivery.rules import AlertRule, AlertRules

STREAMS_PART: Final = 0
"""The part whose windows rules on streams follow: a window lacks the same streams in all parts."""
CHANGED: Final = "rule changed"
"""Why an alert ended without a row, if its rule is there."""


@dataclass(frozen=True, slots=True)
class _Window:
    """An answered window, or the last one of a run; ``start`` is that of this one."""

    part: int
    start: int
    boundary: ResultRecord
    rows: Sequence[ResultRecord]


class AlertEvaluator:
    """Evaluates the rules of one query; ``later`` is the ``later`` of its grid of windows."""

    def __init__(
        self, rules: AlertRules, later: LastStart, stored: Iterable[DeliveryRecord] = ()
    ) -> None:
        """``stored``: the records of the topic, of each key the last one."""
        self._rules = rules
        self._later = later
        self._known: dict[tuple[str, int], dict[str, KeyProgress]] = {}
        """By rule and part, what is known of a key, if anything is."""
        self._tentative: dict[tuple[str, int], set[str]] = {}
        """By rule and part, the keys with a tentative alert."""
        position, self._ended = _restored(rules, stored, self._known, self._tentative)
        self._parts = dict(position.parts)
        self._forks = dict(position.forks)
        self._streams = dict(position.streams)

    def begin(self) -> list[AlertRecord]:
        """Return the ends of alerts whose rules have been changed or removed; once."""
        ended, self._ended = self._ended, []
        return ended

    def position(self, placement: int) -> DeliveryPosition:
        """Return the position after all batches that were taken."""
        return DeliveryPosition(
            dict(self._parts),
            dict(self._forks),
            {rule.name: self._streams[rule.name] for rule in self._rules.of_streams
             if rule.name in self._streams},
            dict(self._rules.fingerprints),
            placement,
        )  # fmt: skip

    @property
    def known(self) -> int:
        """Number of keys with a count or an alert, over all rules."""
        return sum(map(len, self._known.values()))

    def part(self, part: int) -> PartPosition:
        """Return where a part goes on."""
        return self._parts.get(part, PartPosition())

    def take(self, batch: DeliveryBatch) -> list[AlertRecord]:
        """Evaluate the windows of a batch."""
        found: list[AlertRecord] = []
        rows: list[ResultRecord] = []
        for record in batch.records:
            match record["kind"]:
                case "stable" | "tentative":
                    rows.append(record)
                case "boundary":
                    start = last_start(record, self._later)
                    found += self._window(_Window(batch.part, start, record, rows))
                    rows = []
                case "rec_done":  # the boundaries before it may have been deleted
                    self._end_fork(batch.part)
        self._parts[batch.part] = batch.after
        return found

    def _window(self, window: _Window) -> Iterator[AlertRecord]:
        part, is_stable = window.part, window.boundary["label"] == "stable"
        if part == STREAMS_PART:
            yield from self._missing(window)
        if not is_stable:
            self._forks[part] = (self._forks.get(part, (window.start,))[0], window.start)
        for rule in self._rules.of_rows:
            if is_stable:
                yield from self._exact(rule, window)
            elif rule.spec.tentative == "act":
                yield from self._live(rule, window)
        if is_stable and part in self._forks and window.start >= self._forks[part][1]:
            self._end_fork(part)

    def _end_fork(self, part: int) -> None:
        """Let the live counts be the exact ones: no answer of the part is tentative."""
        if self._forks.pop(part, None) is None:
            return
        for (_, of_part), of in self._known.items():
            if of_part == part:
                for key, known in list(of.items()):
                    self._store(of, key, known.joined())

    def _exact(self, rule: AlertRule, window: _Window) -> Iterator[AlertRecord]:
        place = rule.spec.name, window.part
        of = self._known.setdefault(place, {})
        is_forked = window.part in self._forks and rule.spec.tentative == "act"
        for row, is_true in self._rows(rule, window, of):
            before = of.get(row["key"], KeyProgress())
            if before.stays_exact(rule.spec.windows, is_true=is_true):
                continue
            began = self._firing(rule, row, window)
            after, change = before.exact_row(
                rule.spec.windows, began, is_true=is_true, is_forked=is_forked
            )
            yield from self._kept(rule, window, of, row["key"], before, after, change, began)
        if awaited := self._tentative.get(place):
            exact = {row["key"]: row for row in window.rows if row["key"] in awaited}
            for key in sorted(awaited):
                yield from self._judge(rule, window, of, key, exact.get(key))

    def _judge(
        self,
        rule: AlertRule,
        window: _Window,
        of: dict[str, KeyProgress],
        key: str,
        row: ResultRecord | None,
    ) -> Iterator[AlertRecord]:
        """End the tentative alert of a key if its window is exact now."""
        began = of[key].tentative
        assert began is not None, "it is awaited"
        is_own = row is not None and began.window_start == window.start
        values = rule.columns.values(rule.reads, row) if is_own and row is not None else None
        after, change = of[key].judged(window.start, values)
        if change is not None:
            self._tentative[rule.spec.name, window.part].discard(key)
            yield from self._kept(rule, window, of, key, of[key], after, change, began)

    def _live(self, rule: AlertRule, window: _Window) -> Iterator[AlertRecord]:
        place = rule.spec.name, window.part
        of = self._known.setdefault(place, {})
        for row, is_true in self._rows(rule, window, of):
            before = of.get(row["key"], KeyProgress())
            if before.stays_live(rule.spec.windows, is_true=is_true):
                continue
            began = self._firing(rule, row, window)
            after, change = before.tentative_row(rule.spec.windows, began, is_true=is_true)
            if after.tentative is not None:
                self._tentative.setdefault(place, set()).add(row["key"])
            yield from self._kept(rule, window, of, row["key"], before, after, change, began)

    def _rows(
        self, rule: AlertRule, window: _Window, of: Mapping[str, KeyProgress]
    ) -> Iterator[tuple[ResultRecord, bool]]:
        """Yield the rows that matter, with their truth: true ones, and false ones of known keys."""
        if not window.rows:
            return
        true, false = rule.truths(window.rows)
        for at in (true | false).nonzero()[0].tolist():
            if true[at] or window.rows[at]["key"] in of:
                yield window.rows[at], bool(true[at])

    def _firing(self, rule: AlertRule, row: ResultRecord, window: _Window) -> Firing:
        boundary = window.boundary
        is_tentative = boundary["label"] == "tentative"
        began = Firing(
            "",
            window.start,
            parse_time(boundary["window_end"]),
            rule.columns.values(rule.reads, row),
            tuple(row["missing"]),
            parse_time(row["stime"]) if "stime" in row else None,
            is_tentative,
        )
        return replace(began, id=alert_id(self._rules.query, rule.identity, row["key"], began))

    def _kept(
        self,
        rule: AlertRule,
        window: _Window,
        of: dict[str, KeyProgress],
        key: str,
        before: KeyProgress,
        after: KeyProgress,
        change: AlertChange | None,
        began: Firing,
    ) -> Iterator[AlertRecord]:
        """Keep what is known of a key now, and yield the record of the change, if there is one."""
        self._store(of, key, after)
        change = change or counted(before, after, began)
        if change is not None:
            kept = after.to_json()
            if kept is not None:
                fork = self._forks.get(window.part, (None,))[0]
                kept |= {"part": window.part, "fork": fork}
            record = self._record(rule.spec.name, key, window, change)
            yield replace(record, progress=kept)

    @staticmethod
    def _store(of: dict[str, KeyProgress], key: str, known: KeyProgress) -> None:
        if known == KeyProgress():
            of.pop(key, None)
        else:
            of[key] = known

    def _missing(self, window: _Window) -> Iterator[AlertRecord]:
        for rule in self._rules.of_streams:

            def identify(began: Firing, name: str = rule.identity) -> str:
                return alert_id(self._rules.query, name, "", began)

            before = self._streams.get(rule.name)
            after, change = missing_changes(rule, before, window.boundary, identify)
            self._streams[rule.name] = after
            if change is not None:
                yield self._record(rule.name, "", window, change)

    def _record(self, name: str, key: str, window: _Window, change: AlertChange) -> AlertRecord:
        boundary = window.boundary
        return AlertRecord(
            rule=name,
            query=self._rules.query,
            key=key,
            state=change.state,
            began=change.began,
            changed_to=parse_time(boundary["window_end"]),
            due_at=parse_time(boundary["due_at"]),
            answered_at=parse_time(boundary["emitted_at"]),
            exact=change.exact,
        )


def _restored(
    rules: AlertRules,
    stored: Iterable[DeliveryRecord],
    known: dict[tuple[str, int], dict[str, KeyProgress]],
    tentative: dict[tuple[str, int], set[str]],
) -> tuple[DeliveryPosition, list[AlertRecord]]:
    """Fill what is known from the stored records.

    Returns the position, and the ends of alerts whose rules are not those of the records.
    """
    records = [*stored]
    position = next((r for r in records if isinstance(r, DeliveryPosition)), DeliveryPosition())
    is_same = {name for name, of in rules.fingerprints.items() if position.rules.get(name) == of}
    ended: list[AlertRecord] = []
    for record in records:
        if not isinstance(record, AlertRecord):
            continue
        progress = None if record.progress is None else KeyProgress.from_json(record.progress)
        if record.rule in is_same:
            if progress is not None and record.progress is not None:
                part, fork = record.progress["part"], record.progress["fork"]
                if fork != position.forks.get(part, (None,))[0]:
                    progress = progress.joined()  # all answers have been exact since
                place = record.rule, part
                known.setdefault(place, {})[record.key] = progress
                if progress.tentative is not None:
                    tentative.setdefault(place, set()).add(record.key)
            continue
        reason = CHANGED if record.rule in rules.fingerprints else rules.gone
        ended += _ends(record, progress, position, reason)
    streams = {name: of for name, of in position.streams.items() if name in is_same}
    return replace(position, streams=streams), ended


def _ends(
    record: AlertRecord, progress: KeyProgress | None, position: DeliveryPosition, reason: str
) -> Iterator[AlertRecord]:
    """Yield the ends of what stands for a key, of a rule that is no longer as it was."""
    stream = position.streams.get(record.rule)
    stands = [] if progress is None else [progress.firing, progress.tentative]
    if stream is not None:
        stands.append(stream.firing)
    for began in stands:
        if began is not None:
            is_judged = began.tentative and progress is not None
            state: AlertState = "withdrawn" if is_judged else "ended"
            yield replace(
                record, state=state, began=began, exact=None, reason=reason, progress=None
            )
    if progress is not None and not any(stands):
        yield replace(record, state="inactive", exact=None, reason=reason, progress=None)
