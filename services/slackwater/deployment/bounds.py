"""Bounds on the size of a deployment; a larger one is refused, with the numbers and a remedy.

A file may require more than any machine has (a window of 100 days that slides by a microsecond puts
each reading into 8,640,000,000,000 windows). Without bounds a process would run out of memory, or
never answer. Everything that grows with the file is therefore bounded here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from slackwater.deployment.yaml_lines import YAML_ENTRIES_MAX
from slackwater.model.deployment import WindowSpec
from slackwater.model.durations import format_duration_us

STREAMS_MAX: Final = YAML_ENTRIES_MAX
"""Maximum streams in a file, and maximum queries. A stream has two topics, a query has more."""
CHAIN_QUERIES_MAX: Final = 32
"""Maximum queries on the longest path from a stream to a result."""
FIELDS_MAX: Final = 1_000
"""Maximum fields of a stream, a query's input and a result. SQLite allows 2,000 columns."""
NAME_CHARS_MAX: Final = 255
"""Maximum length of the name of a field or column."""
WINDOWS_PER_READING_MAX: Final = 100_000
ORDERER_RECORDS_PER_S_MAX: Final = 20_000
"""Maximum input of an orderer: ten times the rate that causes a warning."""
SHOWN_CHARS_MAX: Final = 200
"""Maximum length of one value in a message."""
ERRORS_SHOWN_MAX: Final = 100

EMPTY: Final = "is empty: give it a value, or leave the field out"
_UNBROKEN: Final = re.compile(rf"\S{{{SHOWN_CHARS_MAX + 1},}}")


def too_many_fields(fields: int) -> str | None:
    """Return the error if there are too many fields, else None."""
    return None if fields <= FIELDS_MAX else f"{fields} fields are too many: at most {FIELDS_MAX}"


def too_many_windows(window: WindowSpec) -> str | None:
    """Return the error if a reading is in too many windows, else None."""
    windows = -(-window.size_us // window.slide_us)
    if windows <= WINDOWS_PER_READING_MAX:
        return None
    least_us = -(-window.size_us // WINDOWS_PER_READING_MAX)
    return (
        f"{format_duration_us(window.slide_us)} puts each reading into {windows} windows, at most "
        f"{WINDOWS_PER_READING_MAX}: slide by {format_duration_us(least_us)} or more"
    )


def too_many_records(orderer: str, per_s: float) -> str | None:
    """Return the error if an orderer's input rate is too high, else None."""
    if per_s <= ORDERER_RECORDS_PER_S_MAX:
        return None
    return (
        f"orderer {orderer} would read {per_s:.0f} records/s, at most {ORDERER_RECORDS_PER_S_MAX}: "
        "raise children or slide"
    )


def empty_fields(value: Any) -> list[tuple[str, ...]]:
    """Return the paths of the fields in ``value`` that have no value."""
    if not isinstance(value, Mapping):
        return []
    found: list[tuple[str, ...]] = []
    for name, inner in value.items():
        inside = [()] if inner is None else empty_fields(inner)
        found += [(name, *path) for path in inside]
    return found


def shortened(message: str) -> str:
    """Shorten each long word of a message: a value may be a megabyte."""
    return _UNBROKEN.sub(lambda word: f"{word[0][: SHOWN_CHARS_MAX - 3]}...", message)
