"""The rules of the zones that a query's windows follow, as recorded in its definition.

Fragments on machines with other rules of a zone would disagree about the windows, so the rules are
compared before a process uses a query's grid.
"""

from __future__ import annotations

from collections.abc import Mapping

from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.primitives.calendars import zone_digest


def zones_of(spec: QuerySpec) -> dict[str, str]:
    """The zones that a query's cut points follow, with the rules that this machine has."""
    windows = (*spec.cut_windows, *([] if spec.window is None else [spec.window]))
    return {zone: zone_digest(zone) for zone in sorted({each.zone for each in windows} - {""})}


def check_zones(query: str, zones: Mapping[str, str]) -> None:
    """Raise ``EnvironmentProblem`` if this machine has other rules for one of the zones."""
    for zone, rules in zones.items():
        if zone_digest(zone) != rules:
            raise EnvironmentProblem(
                f"query {query} was registered with other rules of {zone} than this machine has,"
                " and its windows would differ: install the same version of the time zone database"
                " (package tzdata) on all machines; if a new version has changed the zone, delete"
                " the query and apply it under another name"
            )
