"""Rules on streams: how long windows have lacked a stream, in event time, as results report it.

A window that lacks a stream names it (rule-20). The stream is missing since the end of the last
window that did not lack it, whatever a clock says: with a stream that is late by a minute, and a
process that is slow, no alert. It fires when a window ends ``missing`` after that. An exact answer
of an earlier window, a correction, moves the beginning. The alert ends when the latest window is
answered without lacking the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from slackwater.codec.results import parse_time
from slackwater.delivery.batches import ResultRecord
from slackwater.delivery.progress import AlertChange
from slackwater.delivery.records import Firing, StreamProgress
from slackwater.delivery.rules import MissingRule


def missing_changes(
    rule: MissingRule,
    before: StreamProgress | None,
    boundary: ResultRecord,
    identify: Callable[[Firing], str],
) -> tuple[StreamProgress, AlertChange | None]:
    """Take the boundary of a window, or of a run; return what is known then, and the change."""
    known = before or StreamProgress()
    start, end = parse_time(boundary["window_start"]), parse_time(boundary["window_end"])
    if rule.stream in boundary["missing"]:
        return _lacking(rule, known, (start, end), tuple(boundary["missing"]), identify)
    complete_to = end if known.complete_to is None else max(known.complete_to, end)
    known = replace(known, complete_to=complete_to)
    if known.answered_to is not None and end < known.answered_to:
        since = None if known.since is None else max(known.since, end)
        return replace(known, since=since), None
    ended = replace(known, since=None, answered_to=None, firing=None)
    return ended, None if known.firing is None else AlertChange("ended", known.firing)


def _lacking(
    rule: MissingRule,
    known: StreamProgress,
    window: tuple[int, int],
    missing: tuple[str, ...],
    identify: Callable[[Firing], str],
) -> tuple[StreamProgress, AlertChange | None]:
    start, end = window
    since = known.since
    if since is None:
        since = start if known.complete_to is None else min(known.complete_to, end)
    answered_to = end if known.answered_to is None else max(known.answered_to, end)
    known = replace(known, since=since, answered_to=answered_to)
    if known.firing is not None or end - since < rule.missing_us:
        return known, None
    began = Firing("", since, end, {}, missing)
    began = replace(began, id=identify(began))
    return replace(known, firing=began), AlertChange("firing", began)
