"""Results on a terminal: a table for each window, as wide as the terminal, in words and colours."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from tests.unit.cli.test_cli import history

from slackwater.cli.tables import PrintedQuery
from slackwater.cli.window_tables import WindowTables


def shown(records: list[dict[str, Any]], *, width: int = 80, parts: int = 1) -> list[str]:
    console = Console(width=width, file=io.StringIO(), force_terminal=True, record=True)
    page = WindowTables(console, PrintedQuery(frozenset({"room-1", "room-2"}), parts))
    for record in records:
        page.show(record)
    return [line.rstrip() for line in console.export_text().splitlines()]


def test_each_window_has_a_heading_and_a_row_for_each_key_and_field() -> None:
    lines = shown(history())
    assert lines[0] == "1970-01-01 00:16:40 to 00:16:41  exact"
    assert lines[1].split() == ["key", "field", "count", "avg"]
    assert lines[2].split() == ["a", "x", "5", "2"]
    assert "1970-01-01 00:16:41 to 00:16:42  tentative, without room-2" in lines


def test_an_undo_precedes_the_exact_windows_that_replace_it() -> None:
    lines = shown(history())
    at = lines.index("1970-01-01 00:16:41 to 1970-01-01 00:16:42  undone, exact answers follow")
    assert lines[at + 1] == "1970-01-01 00:16:41 to 00:16:42  exact (corrected)"
    assert sum(line.endswith("exact (corrected)") for line in lines) == 2
    assert "all corrected" in lines
    assert "1970-01-01 00:16:43 to 00:16:44  exact" in lines


def test_a_window_appears_as_a_unit_when_it_is_complete() -> None:
    records = history()
    first = next(i for i, record in enumerate(records) if record["kind"] == "boundary")
    assert shown(records[:first]) == []
    assert len(shown(records[: first + 1])) == 2 + first


def test_windows_of_a_part_name_it_and_are_apart_from_others() -> None:
    records = history()
    first = next(i for i, record in enumerate(records) if record["kind"] == "boundary")
    other = [record | {"part": 1} for record in records[: first + 1]]
    mixed = [*records[:first], *other[:first], records[first], other[first]]
    lines = shown(mixed, parts=2)
    assert [line for line in lines if "exact" in line] == [
        "1970-01-01 00:16:40 to 00:16:41, part 0  exact",
        "1970-01-01 00:16:40 to 00:16:41, part 1  exact",
    ]


def test_eight_aggregates_of_long_names_fit_80_columns() -> None:
    figures = dict.fromkeys(("count", "sum", "avg", "min", "max", "range", "var", "stddev"), 0.125)
    records = [
        record | {"key": "k" * 300, "fields": {"f" * 300: figures, "g": figures}}
        if "fields" in record
        else record
        for record in history()
    ]
    assert all(len(line) <= 80 for line in shown(records))


def test_what_a_row_lost_stands_beside_it_and_keys_forge_no_line() -> None:
    row, end = (next(r for r in history() if r["kind"] == kind) for kind in ("stable", "boundary"))
    lines = shown([row | {"key": "m\n\x1b[2J", "lost": {"room-1": 7}}, end], width=120)
    assert lines[2].split()[0] == r"m\n\x1b[2J"
    assert lines[2].endswith("lost 7 of room-1")
