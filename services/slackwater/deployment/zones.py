"""Checks of the time zone of a stream's local times.

A zone changes only times that are written as local ones. Where it could change nothing, as beside
numbers that count from 1970, it is refused: its writer expects something else.
"""

from __future__ import annotations

from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.shapes import TimeShape
from slackwater.deployment.shaping import did_you_mean
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.zones import zone_names

_NOT_LOCAL: Final = (
    "is for local times, which are texts: unit: {unit} counts from 1970 in UTC, wherever the "
    "device is; remove zone"
)
_HAS_OFFSET: Final = "is for local times: %z in {written!r} is the offset of each time; remove zone"
_NO_ZONE: Final = (
    "is for local times, of which an hour occurs twice in autumn: add zone, as in Europe/Berlin"
)


def check_zone(given: TimeShape, place: Place, findings: Findings) -> None:
    """Check that the zone exists, and that the stream's times are local ones."""
    if given.zone is None:
        if given.fold is not None:
            findings.error((*place, "fold"), _NO_ZONE)
        return
    where = (*place, "zone")
    if (reason := why_no_zone(given.zone)) is not None:
        findings.error(where, reason)
    if given.unit not in (None, "iso"):
        findings.error(where, _NOT_LOCAL.format(unit=given.unit))
    elif given.format is not None and "%z" in given.format.replace("%%", ""):
        findings.error(where, _HAS_OFFSET.format(written=given.format))


def why_no_zone(name: str) -> str | None:
    """Return why the text is not the name of a zone; None if it is one."""
    known = zone_names()
    if name in known:
        return None
    if not known:
        return f"{name!r}: this machine has no time zones: install the package tzdata"
    # A city alone, or a name in small letters, is more similar to its zone than to any other.
    by_ending = {each.rpartition("/")[2].lower(): each for each in sorted(known)}
    wanted = name.rpartition("/")[2].lower().replace(" ", "_")
    if wanted in by_ending:
        nearest = f"; did you mean {by_ending[wanted]!r}?"
    else:
        nearest = did_you_mean(name, sorted(known))
    return f"{name!r} is not the name of a time zone, as in Europe/Berlin or UTC{nearest}"
