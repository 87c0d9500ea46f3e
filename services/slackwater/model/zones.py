"""The names of time zones: those of the IANA database on this machine, or of package ``tzdata``."""

from __future__ import annotations

import zoneinfo
from functools import cache
from typing import Final

_NOT_A_PLACE: Final = frozenset(("localtime", "Factory"))
"""Files beside the zones: the zone of the machine, and one without a place."""


@cache
def zone_names() -> frozenset[str]:
    """Return the names; empty if the machine has no database."""
    return frozenset(zoneinfo.available_timezones()) - _NOT_A_PLACE
