"""Bounds on the size of a deployment; larger ones are refused, with the numbers and a remedy.

A file may require more than any machine has (a window of 100 days that slides by a microsecond puts
each reading into 8,640,000,000,000 windows). A process would fail late, out of memory or without
ever answering. Everything that grows with the file is therefore bounded here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from slackwater.deployment.yaml_lines import YAML_ENTRIES_MAX
from slackwater.model.deployment import WindowSpec
from slackwater.model.durations import format_duration_us

STREAMS_MAX: Final = YAML_ENTRIES_MAX
"""In a file, and as many queries. Each has a process and two topics."""
CHAIN_QUERIES_MAX: Final = 32
"""Queries on the longest way from a stream to a result."""
FIELDS_MAX: Final = 1_000
"""Of a stream, of a query's input, of a result. SQLite has 2,000 columns at most."""
NAME_CHARS_MAX: Final = 255
"""Of a field and of a column."""
WINDOWS_PER_READING_MAX: Final = 100_000
ORDERER_RECORDS_PER_S_MAX: Final = 20_000
"""Ten times the rate that causes a warning."""
SHOWN_CHARS_MAX: Final = 200
"""Of one value in a message."""
ERRORS_SHOWN_MAX: Final = 100

EMPTY: Final = "is empty: give it a value, or leave the field out"
_UNBROKEN: Final = re.compile(rf"\S{{{SHOWN_CHARS_MAX + 1},}}")


def too_many_fields(fields: int) -> str | None:
    """None if they are not."""
    return None if fields <= FIELDS_MAX else f"{fields} fields are too many: at most {FIELDS_MAX}"


def too_many_windows(window: WindowSpec) -> str | None:
    """None if they are not."""
    windows = -(-window.size_us // window.slide_us)
    if windows <= WINDOWS_PER_READING_MAX:
        return None
    least_us = -(-window.size_us // WINDOWS_PER_READING_MAX)
    return (
        f"{format_duration_us(window.slide_us)} puts each reading into {windows} windows, at most "
        f"{WINDOWS_PER_READING_MAX}: slide by {format_duration_us(least_us)} or more"
    )


def too_many_records(orderer: str, per_s: float) -> str | None:
    """None if they are not."""
    if per_s <= ORDERER_RECORDS_PER_S_MAX:
        return None
    return (
        f"orderer {orderer} would read {per_s:.0f} records/s, at most {ORDERER_RECORDS_PER_S_MAX}: "
        "raise children or slide"
    )


def empty_fields(value: Any) -> list[tuple[str, ...]]:
    """Paths of the fields in ``value`` that stand there without a value."""
    if not isinstance(value, Mapping):
        return []
    found: list[tuple[str, ...]] = []
    for name, inner in value.items():
        inside = [()] if inner is None else empty_fields(inner)
        found += [(name, *path) for path in inside]
    return found


def shortened(message: str) -> str:
    """The message with each long word in it cut: a value may be a megabyte."""
    return _UNBROKEN.sub(lambda word: f"{word[0][: SHOWN_CHARS_MAX - 3]}...", message)
