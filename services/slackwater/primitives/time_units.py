"""Guesses that times have another unit than the declared one, from how far they are off."""

from __future__ import annotations

from typing import Final

UNITS_US: Final = {"s": 1_000_000.0, "ms": 1_000.0, "us": 1.0, "ns": 0.001}
NEAR_US: Final = 2 * 86_400_000_000
"""A time of another unit is nearer to the clock than this, as soon as its unit is right, in us."""


def meant_unit(stime_us: int, clock_us: int, declared: str | None) -> str | None:
    """Return the unit with which a time would be near the clock; None if it is no other one."""
    factor = _factor(stime_us, clock_us)
    if factor is None or declared not in UNITS_US:
        return None
    for unit, us in UNITS_US.items():
        if abs(us / UNITS_US[declared] / factor - 1) < 1e-6:
            return unit
    return None


def unit_question(declared: str, meant: str) -> str:
    """Return the guess as a question to people."""
    return f"is the unit {meant}? `unit: {declared}` is declared"


def other_unit(stime_us: int, clock_us: int, declared: str | None) -> str:
    """Return the question whether a time has another unit, or nothing.

    Without a declared unit it asks for the factor between the two.
    """
    if declared in UNITS_US:
        meant = meant_unit(stime_us, clock_us, declared)
        return "" if meant is None else unit_question(declared, meant)
    factor = _factor(stime_us, clock_us)
    if factor is None:
        return ""
    longer = f"{factor:,.0f} times as long" if factor > 1 else f"1/{1 / factor:,.0f} of it"
    return f"is the unit {longer}?"


def _factor(stime_us: int, clock_us: int) -> float | None:
    """Return by how much a time is to be multiplied to be near the clock; None if by nothing."""
    if abs(clock_us - stime_us) < NEAR_US:
        return None
    factors = (1e3, 1e6, 1e9, 1e-3, 1e-6, 1e-9)
    return next((f for f in factors if abs(stime_us * f - clock_us) < NEAR_US), None)
