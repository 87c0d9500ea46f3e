"""Results on a terminal: a table for each window, with a row for each key and field.

The rows of a window come one after the other, and its boundary ends them. All that belongs to one
answer is printed at once, with the same columns as the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from slackwater.cli.screen import STYLES
from slackwater.cli.tables import PrintedQuery, number, remarks, short_time, visible

FIGURE_COLUMNS_MIN: Final = 7


class WindowTables:
    """Prints the records of one query, in the order of the client."""

    def __init__(self, console: Console, of: PrintedQuery) -> None:
        self._console, self._of = console, of
        self._rows: dict[int, list[Mapping[str, Any]]] = {}
        self._undone: dict[int, tuple[str, str]] = {}
        """By part the first and the last window of the latest UNDO, as texts of one form."""

    def show(self, record: Mapping[str, Any]) -> None:
        """Print a record; rows are kept until the boundary of their window."""
        part, suffix = record["part"], self._of.part(record["part"])
        match record["kind"]:
            case "stable" | "tentative":
                self._rows.setdefault(part, []).append(record)
            case "boundary":
                rows = self._rows.pop(part, [])
                if rows:
                    self._print(self._heading(record, part), self._table(rows))
            case "undo":
                self._undone[part] = record["undo_from"], record["undo_to"]
                first, last = short_time(record["undo_from"]), short_time(record["undo_to"])
                span = first if first == last else f"{first} to {last}"
                text = f"{span}{suffix}  undone, exact answers follow"
                self._print(Text(text, "red"))
            case "rec_done":
                self._print(Text(f"all corrected{suffix}", STYLES["corrected"]))
            case "gap":
                first, last = short_time(record["gap_from"]), short_time(record["gap_to"])
                lost = f"{record['lost']} readings of {visible(record['stream'])} lost"
                self._print(Text(f"{first} to {last}{suffix}  {lost}", "bold red"))

    def _heading(self, boundary: Mapping[str, Any], part: int) -> Text:
        is_exact = boundary["label"] == "stable"
        lacks = self._of.without(boundary.get("missing", ()), has_row=True)
        first, last = self._undone.get(part, ("", ""))
        is_corrected = is_exact and first <= boundary["window_start"] <= last
        state = ", ".join(filter(None, ["tentative", visible(lacks)]))
        if is_exact:
            state = "exact (corrected)" if is_corrected else "exact"
        begin, end = short_time(boundary["window_start"]), short_time(boundary["window_end"])
        end = end.removeprefix(begin[: begin.index(" ") + 1])
        style = STYLES["corrected" if is_corrected else "exact" if is_exact else "tentative"]
        return Text(f"{begin} to {end}{self._of.part(part)}  {state}", style)

    def _table(self, rows: list[Mapping[str, Any]]) -> Table:
        fields = [given for row in rows for given in row["fields"].values()]
        figures = list(dict.fromkeys(figure for given in fields for figure in given))
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        table.add_column("  key", no_wrap=True, overflow="ellipsis", min_width=10)
        table.add_column("field", no_wrap=True, overflow="ellipsis", min_width=12)
        for figure in figures:
            table.add_column(figure, justify="right", min_width=FIGURE_COLUMNS_MIN, no_wrap=True)
        has_remarks = any(row.get("lost") or row.get("overflow") for row in rows)
        if has_remarks:
            table.add_column("")
        for row in rows:
            for i, (name, given) in enumerate(row["fields"].items()):
                key = f"  {visible(row['key'])}" if i == 0 else ""
                cells = [number(given.get(figure)) for figure in figures]
                remark = visible(remarks({**row, "missing": ()}, self._of)) if i == 0 else ""
                table.add_row(Text(key), Text(visible(name)), *cells, *[remark] * has_remarks)
        return table

    def _print(self, *shown: RenderableType) -> None:
        self._console.print(*shown, sep="\n", soft_wrap=False)
