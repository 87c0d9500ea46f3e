"""Checks the windows of a query, and describes windows in words.

Windows of a calendar begin at the same local times each day, week or year, so their sizes divide
these; another size is refused with the nearest one.
"""

from __future__ import annotations

from typing import Final, get_args

from slackwater.deployment.bounds import too_many_windows
from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import WindowShape
from slackwater.deployment.window_size import MONTHS_MAX, WEEK_US, Weekday, WindowSize, window_size
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.deployment.zones import why_no_zone
from slackwater.model.deployment import WindowSpec
from slackwater.model.durations import UNITS_US, format_duration_us

_DAYS: Final = get_args(Weekday)
_MONDAY_US: Final = 4 * UNITS_US["d"]
"""1 January 1970 was a Thursday."""
_SIZE_US_MAX: Final = 2**61
"""Sizes lie below it, so that sums of two fit 64 bits."""
_MONTH_OFFSET_US_MAX: Final = 28 * UNITS_US["d"]
_SIZES: Final = (
    *("1h", "2h", "3h", "4h", "6h", "8h", "12h", "1d", "1w"),
    *("1mo", "2mo", "3mo", "4mo", "6mo", "12mo"),
)
_CALENDAR_SIZES: Final = tuple(map(window_size, _SIZES))
_NO_SLIDE: Final = (
    "windows of {size}{zone} follow a calendar, whose days and months differ in length, and do not "
    "overlap: remove slide{or_zone}"
)
_NO_SIZE: Final = (
    "{size} does not begin at the same local times: with a zone, or in months, a size is one of "
    "{known}; the nearest is {nearest}"
)
_NO_OFFSET: Final = "{offset} is not shorter than {limit}, after which the starts repeat"


def window_of(shape: WindowShape, place: Place, findings: Findings) -> WindowSpec | None:
    """Return the windows; None after an error."""
    size, errors = shape.size, _Errors(place, findings)
    if shape.starts is not None and not size.weeks:
        reason = f"is for weeks, and windows of {size.text} have no first day: write size: 1w"
        errors.add("starts", reason)
    calendar = _calendar(shape, errors) if shape.zone is not None or size.months else None
    fixed = _fixed(shape, errors) if calendar is None else None
    return None if errors.found else calendar or fixed


class _Errors:
    def __init__(self, place: Place, findings: Findings) -> None:
        self.found = False
        self._place, self._findings = place, findings

    def add(self, field: str, reason: str) -> None:
        self.found = True
        self._findings.error((*self._place, field), reason)


def _calendar(shape: WindowShape, errors: _Errors) -> WindowSpec:
    size, zone = shape.size, shape.zone
    if zone is not None and (reason := why_no_zone(zone)) is not None:
        errors.add("zone", reason)
    if shape.slide is not None:
        of_zone = "" if zone is None else f" in {zone}"
        or_zone = "" if size.months else ", or zone, for days of 24 hours of UTC"
        errors.add("slide", _NO_SLIDE.format(size=size.text, zone=of_zone, or_zone=or_zone))
    same = [each for each in _CALENDAR_SIZES if (each.us, each.months) == (size.us, size.months)]
    if not same:
        nearest = min(_CALENDAR_SIZES, key=lambda each: (abs(each.us - size.us), each.us))
        known = ", ".join(each.text for each in _CALENDAR_SIZES)
        errors.add("size", _NO_SIZE.format(size=size.text, known=known, nearest=nearest.text))
    limit = _MONTH_OFFSET_US_MAX if size.months else size.us
    _check_offset(shape, limit, errors)
    if (shape.offset or 0) % UNITS_US["s"]:
        errors.add("offset", "clocks of zones differ by whole seconds: write whole seconds")
    # A zone that is UTC has no changes, but its months differ; empty stands for UTC.
    return WindowSpec(size.us, size.us, _offset(shape, limit), size.months, zone or "")


def _fixed(shape: WindowShape, errors: _Errors) -> WindowSpec:
    size = shape.size
    slide = size.us if shape.slide is None else shape.slide
    if slide > size.us:
        reason = f"{format_duration_us(slide)} is larger than size, {_text(size)}"
        errors.add("slide", reason)
    _check_offset(shape, slide, errors)
    window = WindowSpec(size.us, slide, _offset(shape, slide))
    if not errors.found and (too_many := too_many_windows(window)) is not None:
        errors.add("slide", too_many)
    return window


def _check_offset(shape: WindowShape, limit_us: int, errors: _Errors) -> None:
    if shape.offset is not None and shape.offset >= limit_us:
        offset, limit = map(format_duration_us, (shape.offset, limit_us))
        errors.add("offset", _NO_OFFSET.format(offset=offset, limit=limit))


def _offset(shape: WindowShape, limit_us: int) -> int:
    """Return the declared offset, for weeks after the first day of the week."""
    offset = shape.offset or 0
    if shape.size.weeks:
        offset += _MONDAY_US + _DAYS.index(shape.starts or "monday") * UNITS_US["d"]
    return offset % limit_us


def _text(size: WindowSize) -> str:
    return size.text if size.weeks else format_duration_us(size.us)


def describe_window(window: WindowSpec) -> str:
    """Describe a window, as in ``1d in Europe/Berlin``."""
    text = format_duration_us(window.size_us)
    if window.months:
        text = f"{window.months}mo"
    elif window.is_calendar and window.size_us == WEEK_US:
        text = "1w"
    if window.slide_us != window.size_us:
        text += f" every {format_duration_us(window.slide_us)}"
    if window.offset_us:
        text += f" from {format_duration_us(window.offset_us)}"
    return f"{text} in {window.zone or 'UTC'}" if window.is_calendar else text


def why_no_window(window: WindowSpec) -> str | None:
    """Return why no deployment file can have declared the window; None if one can."""
    size, slide, months = window.size_us, window.slide_us, window.months
    limit = _MONTH_OFFSET_US_MAX if months else slide
    sound = (
        0 < slide <= size < _SIZE_US_MAX
        and 0 <= window.offset_us < limit
        and 0 <= months <= MONTHS_MAX
    )
    if sound and window.is_calendar:
        known = {(each.us, each.months) for each in _CALENDAR_SIZES}
        in_seconds = window.offset_us % UNITS_US["s"] == 0
        sound = slide == size and (size, months) in known and in_seconds
    return None if sound else f"a window of {size} us every {slide} us, from {window.offset_us} us"
