"""Formats results as lines of text for terminals and pipes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final


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


@dataclass(frozen=True, slots=True)
class PrintedQuery:
    """What is known of the query whose results are printed."""

    streams: frozenset[str] = frozenset()
    """All streams that it reads; if every one of them is missing, a row has readings of these."""
    parts: int = 1

    def part(self, number: int) -> str:
        """Return a text that names a part, if there are several."""
        return f", part {number}" if self.parts > 1 else ""

    def without(self, missing: Sequence[str], *, has_row: bool) -> str:
        """Return the words for missing streams, empty if there are none."""
        partly = self.streams if has_row and self.streams and self.streams <= {*missing} else ()
        return without(missing, partly)


UNKNOWN_QUERY: Final = PrintedQuery()


def without(missing: Sequence[str], partly: Collection[str] = ()) -> str:
    """Return ``without the rest of a, b``; ``partly``: missing streams of which a part is in."""
    names = ", ".join(f"the rest of {s}" if s in partly else s for s in missing)
    return f"without {names}" if names else ""


def line(record: Mapping[str, Any], of: PrintedQuery = UNKNOWN_QUERY) -> str:
    """Format a result as one line, whatever its key contains."""
    return visible(_line(record, of))


def _line(record: Mapping[str, Any], of: PrintedQuery) -> str:
    kind, part = record["kind"], of.part(record["part"])
    match kind:
        case "stable" | "tentative":
            when = short_time(record.get("stime", record["window_start"]))
            shown, lacks = figures(record["fields"]), remarks(record, of)
            lacks = f"  {lacks}" if lacks else ""
            return f"{kind:<9} {when:<26} {record['key']:<12} {shown}{lacks}"
        case "boundary":
            lacks = of.without(record.get("missing", ()), has_row=record["keys"] > 0)
            when = short_time(record["window_start"])
            run = f" x {record['windows']}" if record["windows"] > 1 else ""
            rows = "row" if record["keys"] == 1 else "rows"
            what = "skipped" if record.get("skipped") else f"{record['keys']} {rows}"
            lacks = f"  {lacks}" if lacks else ""
            return f"{record['label']:<9} {when:<26} {'(window)':<12} {what}{run}{part}{lacks}"
        case "undo":
            first, last = short_time(record["undo_from"]), short_time(record["undo_to"])
            return f"undo      {first:<26} to {last}{part}"
        case "rec_done":
            return f"rec_done  all corrected{part}"
        case "gap":
            first, last = short_time(record["gap_from"]), short_time(record["gap_to"])
            lost = f"{record['lost']} readings of {record['stream']} lost"
            return f"gap       {first:<26} to {last}{part}: {lost}"
    return f"{kind:<9} " + " ".join(f"{k}={v}" for k, v in record.items() if k != "kind")


def remarks(record: Mapping[str, Any], of: PrintedQuery) -> str:
    """Return what a row lacks, has lost, and of which fields the figures are beyond doubles."""
    parts = [of.without(record.get("missing", ()), has_row=True)]
    parts += [f"lost {n} of {s}" for s, n in _lost(record.get("lost")).items()]
    parts += [f"overflow of {name}" for name in record.get("overflow", ())]
    return "  ".join(filter(None, parts))


def _lost(lost: Any) -> dict[str, Any]:
    return dict(lost) if isinstance(lost, Mapping) else ({} if not lost else {"readings": lost})
