"""What `results` shows of corrections: those of answers that it has shown."""

from __future__ import annotations

from typing import Any

from slackwater.cli import shown
from slackwater.cli.shown import ShownAnswers


def of(kind: str, first: str = "", last: str = "", part: int = 0) -> dict[str, Any]:
    times = {"undo_from": first, "undo_to": last} if kind == "undo" else {"window_start": first}
    return {"kind": kind, "part": part} | times


def test_an_undo_of_what_was_not_shown_is_not_shown() -> None:
    answers = ShownAnswers()
    assert not answers.concerns(of("undo", "10", "20"))
    assert answers.concerns(of("stable", "10"))
    assert not answers.concerns(of("rec_done"))


def test_an_undo_of_one_shown_window_is_shown_once_with_its_end() -> None:
    answers = ShownAnswers()
    assert answers.concerns(of("tentative", "15"))
    assert not answers.concerns(of("undo", "10", "14"))
    assert not answers.concerns(of("undo", "16", "20"))
    assert not answers.concerns(of("undo", "10", "20", part=1)), "each part has its own windows"
    assert answers.concerns(of("undo", "10", "20"))
    assert not answers.concerns(of("undo", "10", "20"))
    assert not answers.concerns(of("rec_done", part=1))
    assert answers.concerns(of("rec_done"))
    assert not answers.concerns(of("rec_done"))


def test_with_more_windows_than_are_kept_every_undo_is_shown(monkeypatch: Any) -> None:
    monkeypatch.setattr(shown, "WINDOWS_MAX", 2)
    answers = ShownAnswers()
    for start in ("11", "12", "13"):
        assert answers.concerns(of("tentative", start))
    assert answers.concerns(of("undo", "13", "13"))
    assert answers.concerns(of("rec_done"))


def test_all_else_is_shown() -> None:
    assert all(ShownAnswers().concerns(of(kind)) for kind in ("stable", "gap", "boundary"))
