"""Formats results as lines of text for terminals and pipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def short_time(text: str) -> str:
    """Shorten ``2016-03-15T08:47:28.545000Z`` to ``2016-03-15 08:47:28.545``."""
    text = text.removesuffix("Z").replace("T", " ")
    if "." in text:
        text = text.rstrip("0").removesuffix(".")
    return text


def figures(fields: Mapping[str, Mapping[str, float | int | None] | float | None]) -> str:
    """Format ``temperature count=3 avg=20.5``, or for a reading ``temperature=20.5``."""
    return "  ".join(
        f"{name} " + " ".join(f"{figure}={number(value)}" for figure, value in given.items())
        if isinstance(given, Mapping)
        else f"{name}={number(given)}"
        for name, given in fields.items()
    )


def number(value: float | None) -> str:
    """Format a number with up to six significant digits; ``-`` for None."""
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def visible(text: str, kept: str = "") -> str:
    r"""Escape characters that a terminal would interpret, such as ``\x1b``.

    Keys of messages and headers of files are untrusted. ``kept`` are control characters to keep.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def line(record: Mapping[str, Any]) -> str:
    """Format a result as one line, whatever its key contains."""
    return visible(_line(record))


def _line(record: Mapping[str, Any]) -> str:
    kind, part = record["kind"], record["part"]
    missing = ", ".join(record.get("missing", ()))
    lacks = f"  without {missing}" if missing else ""
    match kind:
        case "stable" | "tentative":
            when = short_time(record.get("stime", record["window_start"]))
            shown = figures(record["fields"])
            lost = "".join(f"  lost {n} of {s}" for s, n in _lost(record.get("lost")).items())
            return f"{kind:<9} {when:<26} {record['key']:<12} {shown}{lacks}{lost}"
        case "boundary":
            when = short_time(record["window_start"])
            run = f" x {record['windows']}" if record["windows"] > 1 else ""
            rows = "row" if record["keys"] == 1 else "rows"
            what = "skipped" if record.get("skipped") else f"{record['keys']} {rows}"
            end = f"part {part}: {what}{run}"
            return f"{record['label']:<9} {when:<26} {'(window)':<12} {end}{lacks}"
        case "undo":
            first, last = short_time(record["undo_from"]), short_time(record["undo_to"])
            return f"undo      {first:<26} to {last}, part {part}"
        case "rec_done":
            return f"rec_done  epoch {record['epoch']}, part {part}: all corrected"
        case "gap":
            first, last = short_time(record["gap_from"]), short_time(record["gap_to"])
            lost = f"{record['lost']} readings of {record['stream']} lost"
            return f"gap       {first:<26} to {last}, part {part}: {lost}"
    return f"{kind:<9} " + " ".join(f"{k}={v}" for k, v in record.items() if k != "kind")


def _lost(lost: Any) -> dict[str, Any]:
    return dict(lost) if isinstance(lost, Mapping) else ({} if not lost else {"readings": lost})
