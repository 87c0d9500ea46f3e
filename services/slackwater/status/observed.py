"""What a proxy's heartbeat says of the readings: declared fields and the clocks of devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from slackwater.primitives.time_units import unit_question
from slackwater.runtime.service.parts import (
    HAS,
    HTTP_AT,
    INGEST_LINE,
    INGEST_LINES,
    OFFERED,
    OFFSET_MS,
    PARTITION_TO,
    READINGS_MIN,
    RECEIVER,
    SKIPPED,
    SKIPPED_BY,
    SKIPPED_DEVICES,
    THERE,
    UNIT,
)

RECEIVER_BEHIND_MS = 10_000
"""How long an alert waits before that is said."""
_PREFIXES = (HAS, HTTP_AT, THERE, OFFSET_MS, PARTITION_TO, RECEIVER, SKIPPED_BY, UNIT)


def counters(detail: Mapping[str, int]) -> dict[str, int]:
    """Return the counters that are shown as they are."""
    return {name: n for name, n in detail.items() if not name.startswith(_PREFIXES)}


def phrases(detail: Mapping[str, int]) -> Iterator[str]:
    """Yield what is to be said of fields and clocks."""
    if INGEST_LINE in detail:
        of = f" of {detail[INGEST_LINES]:,}" if INGEST_LINES in detail else ""
        yield f" reads a file: {detail[INGEST_LINE]:,}{of} lines"
    offered = detail.get(OFFERED, 0)
    have = _with(detail, HAS)
    absent = [field for field, n in have.items() if not n] if offered >= READINGS_MIN else []
    partly = [f"{field} {n / offered:.1%}" for field, n in have.items() if 0 < n < offered]
    if absent:
        there = sorted(_with(detail, THERE).items(), key=lambda each: each[1])
        names = ", ".join(name for name, _ in there)
        messages = f" (a message has {names})" if names else ""
        yield f" WARNING: no reading has {', '.join(absent)}{messages}"
    if partly:
        yield f" fields in a part of the readings: {', '.join(partly)}"
    offsets = sorted(_with(detail, OFFSET_MS).items(), key=lambda each: -abs(each[1]))
    if offsets:
        clocks = ", ".join(f"{key} {_lead(ms)}" for key, ms in offsets)
        yield f" clocks of devices: {clocks}"
    if detail.get(SKIPPED, 0):
        devices, n = ", ".join(_counts(detail)), detail.get(SKIPPED_DEVICES, 0)
        yield f" {detail[SKIPPED]:,} numbers skipped by {n:,} devices: {devices}"
    for units in _with(detail, UNIT):
        yield f" times are far off: {unit_question(*units.split('.'))}"


def _counts(detail: Mapping[str, int]) -> Iterator[str]:
    for key, count in sorted(_with(detail, SKIPPED_BY).items(), key=lambda each: -each[1]):
        yield f"{key} {count:,}"


def receivers(detail: Mapping[str, int], states: Mapping[str, str]) -> Iterator[str]:
    """Yield what is to be said of receivers of alerts that do not get all there is."""
    figures = _with(detail, RECEIVER)
    for name, state in states.items():
        failures, waiting, behind_ms = (
            figures.get(f"{name}.{each}", 0) for each in ("failures", "waiting", "behind_ms")
        )
        if failures or behind_ms >= RECEIVER_BEHIND_MS:
            why = f", {failures} failures: {state}" if failures else ""
            yield f" {name}: {waiting} alerts wait, for {behind_ms / 1_000:.0f} s{why}"


def _lead(ms: int) -> str:
    """Format a clock's offset; one of years is rather a time in another unit."""
    seconds = ms / 1_000
    for unit, length in (("years", 31_557_600), ("days", 86_400)):
        if abs(seconds) >= 2 * length:
            return f"{seconds / length:+,.1f} {unit}"
    return f"{seconds:+.1f} s"


def _with(detail: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {n.removeprefix(prefix): count for n, count in detail.items() if n.startswith(prefix)}


def age(us: int) -> str:
    """Format a duration briefly: 12s, 3m, 5h, 2d."""
    seconds = max(0, us) // 1_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
