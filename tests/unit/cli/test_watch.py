"""The live table of one's own query: figure, columns, and the same board as the demo."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console
from tests.unit.machine.test_layout import query

from slackwater.cli import watch
from slackwater.cli.watch import TitledLines, Watched, choose, run_watch
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
    assert "q: avg of t (1 of 2 figures: --figure); 1 more keys (--key)" in text
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


def printed(*records: dict[str, Any]) -> list[str]:
    """The lines in a pipe."""
    lines: list[str] = []
    mine = Watched(definition(), "", (), keys_max=2, rows=16)
    titled = TitledLines(mine, lines.append)
    for record in records:
        mine.apply(record, 0, titled.saw)
    return lines


def undo(first: int, last: int) -> dict[str, Any]:
    span = {"undo_from": format_time(first), "undo_to": format_time(last)}
    return {"query": "q", "kind": "undo", "part": 0} | span


REC_DONE = {"query": "q", "kind": "rec_done", "part": 0}


def test_the_figure_has_its_name_in_a_pipe_and_on_a_terminal() -> None:
    both = row("stable", "a", 0, 1.5)
    both["fields"]["h"] = {"max": 3.0}
    lines = printed(both, boundary("stable", 0), row("stable", "a", S, 2.5), boundary("stable", S))
    assert lines[0] == "q: avg of t (1 of 3 figures: --figure)"
    assert [line.split() for line in lines[1:]] == [
        ["00:00:00", "a", "1.50", "exact"],
        ["00:00:01", "a", "2.50", "exact"],
    ]
    mine = Watched(definition(), "h.max", (), keys_max=2, rows=16)
    mine.apply(both, 0, mine.board.apply)
    assert "q: max of h (1 of 3 figures: --figure)" in shown(mine)


def test_what_was_undone_before_the_begin_is_not_shown() -> None:
    """A reader from the end gets the UNDO of windows that it never saw."""
    corrected = (undo(0, 5 * S), *(boundary("stable", at * S) for at in range(6)), REC_DONE)
    lines = printed(*corrected)
    assert [line.split()[0] for line in lines] == [f"00:00:0{at}" for at in range(6)]
    assert all(line.endswith("  exact") for line in lines), "not corrected: none was seen"


def test_of_an_undo_only_the_windows_that_were_shown_are_told() -> None:
    seen = boundary("tentative", 4 * S, "lab"), boundary("tentative", 5 * S, "lab")
    exact = [boundary("stable", at * S) for at in range(6)]
    lines = printed(*seen, undo(0, 5 * S), *exact, REC_DONE, undo(0, 5 * S), REC_DONE)
    assert lines[2] == "00:00:04  to 00:00:05 undone, exact answers follow"
    assert [line.endswith("exact (corrected)") for line in lines[3:9]] == [False] * 4 + [True] * 2
    assert lines[9:] == ["          all corrected"], "the second UNDO had nothing to withdraw"


def test_counts_are_of_what_was_on_the_board() -> None:
    mine = Watched(definition(), "", (), keys_max=2, rows=16)
    for record in (undo(0, 5 * S), boundary("stable", 0), REC_DONE):
        mine.apply(record, 0, mine.board.apply)
    assert mine.board.counts == {"exact": 1, "tentative": 0, "undone": 0, "corrected": 0}
    assert "every tentative answer" not in shown(mine)
