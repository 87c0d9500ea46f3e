"""Guesses which columns are the time of a reading, and in which unit or format.

A number is a time if, in some unit, it is in the years 2000 to 2100: the ranges of seconds,
milliseconds, microseconds and nanoseconds do not overlap. A text is tried against ISO 8601 and then
against combinations of dates, times of day and endings.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from slackwater.formats.columns import number_of, time_of
from slackwater.model.deployment import TimeSpec, TimeUnit

YEARS_S: Final = (946_684_800, 4_102_444_800)
"""From 2000 to 2100."""
UNITS: Final[Mapping[TimeUnit, int]] = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
DAY_US: Final = 86_400_000_000
_DATES: Final = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y",
    "%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d %b %Y", "%b %d %Y", "%d-%b-%Y", "%Y%m%d",
)  # fmt: skip
_OF_DAY: Final = (
    "%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%S,%f", "%H:%M", "%I:%M:%S %p", "%I:%M %p", "%H.%M.%S",
    "%H.%M.%S,%f", "%H.%M", "%H%M%S", "%H%M",
)  # fmt: skip
_ENDS: Final = ("", "Z", "z", " UTC", " GMT")
_TEXT: Final = re.compile(
    r"(?P<date>\d{8}|\d{1,4}[./-]\d{1,2}[./-]\d{2,4}|\d{1,2}[ -][A-Za-z]{3}[ -]\d{4}"
    r"|[A-Za-z]{3} \d{1,2} \d{4})(?P<between>T|, | - | |)"
    r"(?P<time>\d{1,2}[:.]?\d\d(?:[:.]?\d\d)?(?:[.,]\d{1,6})?(?: [AaPp][Mm])?)(?P<end>.*)"
)
_HINT: Final = re.compile(
    r"(?i)(?:^|[^a-z])(?:ts|t|dt|at|date|time|datum|zeit|fecha|hora|when)(?:$|[^a-z])|time|date|zeit"
    r"|datum|stamp|created|changed|last_seen|polled|measured|received"
)
_OFFSET: Final = re.compile(r"GMT([+-])(\d\d?):?00")
TRIED_MAX: Final = 200
"""Values against which a format is tried first."""


@dataclass(frozen=True, slots=True)
class GuessedTime:
    """Which columns are the time; ``is_local``: texts without an offset.

    ``other``: the format that fits as well, with day and month exchanged.
    """

    columns: tuple[str, ...]
    spec: TimeSpec
    example: str
    us: int
    is_local: bool = False
    other: str | None = None


def guess_time(columns: Mapping[str, Sequence[str]]) -> GuessedTime | None:
    """Return the most probable time; None if no column is one."""
    found = [
        (rank + 10 * (_HINT.search(name) is None), i, guess)
        for i, (name, texts) in enumerate(columns.items())
        for rank, guess in _of_column(name, texts)
    ]
    found += [(rank, i, guess) for rank, i, guess in _of_pairs(columns)]
    return min(found, key=lambda each: each[:2])[2] if found else None


def _of_column(name: str, texts: Sequence[str]) -> Iterator[tuple[int, GuessedTime]]:
    """Yield the guesses for one column with their ranks, the best of which is 0."""
    given = [text for text in texts if text]
    if not given or 2 * len(given) < len(texts):
        return
    if all(len(text) == 10 for text in given):
        compact = _formatted(name, given, ("%Y%m%d%H",))
        if compact is not None:
            yield 2, compact
            return
    if (unit := _unit(given)) is not None:
        spec = TimeSpec((name,), unit=unit)
        us = time_of(given[0], spec)
        if us is not None:
            # A column that counts something else could have such numbers: without a name that
            # hints at a time it is one only if nothing else is.
            yield 0, GuessedTime((name,), spec, given[0], us)
        return
    if not any(re.search(r"\d", text) for text in given[:TRIED_MAX]):
        return
    if _all_parse(given, iso := TimeSpec((name,), unit="iso")):
        us = time_of(given[0], iso) or 0
        local = not re.search(r"(?:Z|[+-]\d\d:?\d\d(?::?\d\d)?)$", given[0], re.IGNORECASE)
        rank = 6 if len(given[0]) <= 10 else 2 if local else 1
        yield rank, GuessedTime((name,), iso, given[0], us, is_local=local)
        return
    guess = _formatted(name, given, _formats(given[0]))
    if guess is not None:
        yield 2, guess
    elif (dates := _formatted(name, given, _DATES)) is not None:
        yield 7, dates


def _formatted(name: str, texts: Sequence[str], formats: Sequence[str]) -> GuessedTime | None:
    fits = [
        format_
        for format_ in formats
        if _all_parse(texts, TimeSpec((name,), format=format_)) and _in_years(texts[0], format_)
    ]
    if not fits:
        return None
    # A number above 12 is no month: the text that has it decides for all others.
    left = {format_: _unparsed(texts, TimeSpec((name,), format=format_)) for format_ in fits}
    fits = [format_ for format_ in fits if left[format_] == min(left.values())]
    best = min(fits, key=lambda format_: (_days(texts, format_), fits.index(format_)))
    spec = _with_zone(name, TimeSpec((name,), format=best))
    us = time_of(texts[0], spec) or 0
    other = next((format_ for format_ in fits if _differ(texts, best, format_)), None)
    local = spec.zone is None and not best.endswith(("%z", "UTC", "Z", "z"))
    return GuessedTime((name,), spec, texts[0], us, is_local=local, other=other)


def _differ(texts: Sequence[str], one: str, other: str) -> bool:
    """Whether two formats that fit give different times."""
    specs = [TimeSpec(("",), format=format_) for format_ in (one, other)]
    return any(
        len({time_of(text, spec) for spec in specs}) > 1
        for text in dict.fromkeys(texts[:TRIED_MAX])
    )


def _with_zone(name: str, spec: TimeSpec) -> TimeSpec:
    """Return the time with the zone that a heading names, as in ``Date Time, GMT-05:00``."""
    offset = _OFFSET.search(name)
    if offset is None or int(offset[2]) > 12:
        return spec
    sign = "-" if offset[1] == "+" else "+"  # the names of the database have the other sign
    return TimeSpec(spec.columns, format=spec.format, zone=f"Etc/GMT{sign}{int(offset[2])}")


def _of_pairs(columns: Mapping[str, Sequence[str]]) -> Iterator[tuple[int, int, GuessedTime]]:
    """Yield the guesses for a date and, in the column after it, a time of day."""
    for i, (date, time) in enumerate(pairwise(columns)):
        rows = [(a, b) for a, b in zip(columns[date], columns[time], strict=True) if a and b]
        texts = [f"{a} {b}" for a, b in rows]
        if not texts or not all(re.search(r"\d", b) and len(b) <= 15 for _, b in rows[:TRIED_MAX]):
            continue
        if ":" not in rows[0][1] and "." not in rows[0][1]:
            continue
        guess = _formatted(date, texts, _formats(texts[0]))
        if guess is not None:
            spec = TimeSpec((date, time), format=guess.spec.format)
            yield (
                3,
                i,
                GuessedTime(
                    (date, time), spec, guess.example, guess.us, is_local=True, other=guess.other
                ),
            )


def _formats(example: str) -> list[str]:
    """Return the formats of a date with a time of day that fit a text."""
    parts = _TEXT.fullmatch(example)
    if parts is None:
        return []
    end = parts["end"]
    if re.fullmatch(r" ?[+-]\d\d:?\d\d", end):
        end = " %z" if end.startswith(" ") else "%z"
    elif end not in _ENDS:
        return []
    dates = [each for each in _DATES if _parses(parts["date"], each)]
    times = [each for each in _OF_DAY if _parses(parts["time"], each)]
    found = [f"{date}{parts['between']}{time}{end}" for date in dates for time in times]
    # Beside hours of AM and PM the month comes first, unless a number above 12 tells otherwise.
    return sorted(found, key=lambda format_: format_.startswith("%d/") and "%p" in format_)


def _parses(text: str, format_: str) -> bool:
    """Whether a text is a date or a time of day; strptime alone takes 0010 for 00:01:00."""
    compact = not re.search(r"[^%A-Za-z]", format_)
    if compact and len(text) != 2 * format_.count("%") + 2 * format_.count("%Y"):
        return False
    try:
        datetime.strptime(text, format_)  # noqa: DTZ007 -- only whether it parses
    except ValueError:
        return False
    return True


def _all_parse(texts: Sequence[str], spec: TimeSpec) -> bool:
    """Whether nine of ten texts are times, the first one among them."""
    if time_of(texts[0], spec) is None:
        return False
    return 10 * _unparsed(texts, spec) <= len(texts)


def _unparsed(texts: Sequence[str], spec: TimeSpec) -> int:
    """Return how many texts are no times."""
    return sum(1 for text in texts if time_of(text, spec) is None)


def _in_years(text: str, format_: str) -> bool:
    us = time_of(text, TimeSpec(("",), format=format_))
    return us is not None and 0 <= us < YEARS_S[1] * 1_000_000


def _days(texts: Sequence[str], format_: str) -> tuple[int, int]:
    """Return by how many days times go back in all, and how many they span.

    With day and month exchanged they go to and fro, or span years instead of months.
    """
    spec = TimeSpec(("",), format=format_)
    times = [us for text in texts if (us := time_of(text, spec)) is not None]
    back = sum(max(0, before - after) // DAY_US for before, after in pairwise(times))
    return back, (max(times) - min(times)) // DAY_US


def _unit(texts: Sequence[str]) -> TimeUnit | None:
    numbers = [number_of(text) for text in texts]
    for unit, per_s in UNITS.items():
        low, high = (year * per_s for year in YEARS_S)
        within = sum(1 for number in numbers if number is not None and low <= number < high)
        if 10 * within >= 9 * len(texts) and time_of(texts[0], TimeSpec(("",), unit=unit)):
            return unit
    return None
