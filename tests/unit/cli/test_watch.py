"""The live table of one's own query: figure, columns, and the same board as the demo."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.unit.machine.test_layout import query

from slackwater.cli import watch
from slackwater.cli.watch import Watched, choose, run_watch
from slackwater.codec.results import format_time
from slackwater.model.deployment import WindowSpec
from slackwater.model.errors import UsageError
from slackwater.model.names import UNPREFIXED
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.registry import QueryDefinition

S = 1_000_000
FIELDS = {"t": {"count": 2, "avg": 20.5}, "h": {"count": 2, "max": 41.0}}


def definition(**changes: Any) -> QueryDefinition:
    spec = replace(query("q", "s"), window=WindowSpec(S, S), parts=1)
    return QueryDefinition("q", 0, 0, 100_000, replace(spec, **changes))


def row(kind: str, key: str, start: int, value: float) -> dict[str, Any]:
    fields = {"t": {"count": 1, "avg": value}}
    at = format_time(start)
    return {"query": "q", "kind": kind, "part": 0, "key": key, "window_start": at, "fields": fields}


def boundary(label: str, start: int, *missing: str) -> dict[str, Any]:
    at = format_time(start)
    return {
        "query": "q", "kind": "boundary", "part": 0, "label": label, "window_start": at,
        "windows": 1, "missing": list(missing),
    }  # fmt: skip


def shown(of: Watched) -> str:
    console = Console(width=80, height=24, file=io.StringIO(), record=True)
    console.print(of.picture())
    return console.export_text()


def test_the_figure_is_the_first_average_or_the_one_given() -> None:
    assert choose("", FIELDS) == ("t", "avg")
    assert choose("", {"t": {"count": 2}}) == ("t", "count")
    assert choose("h.max", FIELDS) == ("h", "max")
    with pytest.raises(UsageError, match=r"--figure h\.avg: choose among t\.count, t\.avg, h\."):
        choose("h.avg", FIELDS)


def test_windows_are_rows_and_the_first_keys_are_columns() -> None:
    mine = Watched(definition(), "", (), keys_max=2, rows=16)
    assert "waiting for the next answer" in shown(mine)
    for record in (
        row("tentative", "b", 5 * S, 1.5),
        row("tentative", "a", 5 * S, 2.5),
        row("tentative", "c", 5 * S, 3.5),
        boundary("tentative", 5 * S, "lab"),
    ):
        mine.apply(record, 0, mine.board.apply)
    text = shown(mine)
    assert "q: t avg, 1 more keys (--key)" in text
    assert mine.keys == ["a", "b"]
    (line,) = [each for each in text.splitlines() if "00:00:05" in each]
    assert "2.50" in line
    assert "1.50" in line
    assert "3.50" not in text
    assert "tentative, without lab" in line
    assert "waiting" not in text
    assert "%" not in text, "it has no end, and no progress"


def test_given_keys_are_the_columns() -> None:
    mine = Watched(definition(), "t.avg", ("c",), keys_max=2, rows=16)
    mine.apply(row("stable", "a", 0, 1.5), 0, mine.board.apply)
    mine.apply(row("stable", "c", 0, 7.25), 0, mine.board.apply)
    mine.apply(boundary("stable", 0), 0, mine.board.apply)
    assert mine.keys == ["c"]
    assert "7.25" in shown(mine)
    assert "1.50" not in shown(mine)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [({"window": None}, "query q has no window"), ({"parts": 3}, "query q has 3 parts")],
)
def test_what_is_no_table_of_windows_is_refused(
    changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "registered_query", lambda *_: definition(**changes))
    with pytest.raises(UsageError, match=f"{reason}.*slackwater results q --follow"):
        run_watch(Cluster("h:1"), UNPREFIXED, "q", "", (), "end")
