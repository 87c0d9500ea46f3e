"""What changes amount to: the windows of a query, and how one value came about.

The page does the same in JavaScript (``page/model.js``). Here it serves programs, on request.

Pure: changes in, JSON values out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from slackwater.codec.results import parse_time

Body = Mapping[str, Any]
"""The JSON object of a change."""


@dataclass(slots=True)
class _PartWindow:
    answers: list[Body] = field(default_factory=list)
    undone: list[Body] = field(default_factory=list)
    is_revoked: bool = False


def folded(changes: Iterable[Body]) -> dict[str, dict[int, _PartWindow]]:
    """Return the answers by window start and part."""
    windows: dict[str, dict[int, _PartWindow]] = {}
    for change in changes:
        if change["kind"] == "answer":
            at = windows.setdefault(change["window_start"], {})
            window = at.setdefault(change["part"], _PartWindow())
            window.answers.append(change)
            window.is_revoked = False
        elif change["kind"] == "undo":
            _revoke(windows, change)
    return windows


def _revoke(windows: Mapping[str, Mapping[int, _PartWindow]], undo: Body) -> None:
    first, last = parse_time(undo["undo_from"]), parse_time(undo["undo_to"])
    for start, parts in windows.items():
        window = parts.get(undo["part"])
        if window is None or not first <= parse_time(start) <= last:
            continue
        if window.answers[-1]["label"] == "tentative":
            window.undone.append(undo)
            window.is_revoked = True


def windows_json(changes: Iterable[Body], limit: int) -> list[dict[str, Any]]:
    """Return the last windows, oldest first, with the best answer of each part."""
    found = folded(changes)
    return [_window_json(start, found[start]) for start in sorted(found, key=parse_time)[-limit:]]


def _window_json(start: str, parts: Mapping[int, _PartWindow]) -> dict[str, Any]:
    best = {part: window.answers[-1] for part, window in sorted(parts.items())}
    labels = {answer["label"] for answer in best.values()}
    state = "tentative" if "tentative" in labels else "exact"
    if any(window.is_revoked for window in parts.values()):
        state = "withdrawn"
    elif state == "exact" and any(answer["epoch"] for answer in best.values()):
        state = "corrected"
    last = max(best.values(), key=lambda answer: parse_time(answer["emitted_at"]))
    return {
        "window_start": start,
        "window_end": last["window_end"],
        "windows": last["windows"],
        "state": state,
        "skipped": any(answer.get("skipped", False) for answer in best.values()),
        "missing": sorted({name for answer in best.values() for name in answer["missing"]}),
        "parts": list(best),
        "rows": [row for answer in best.values() for row in answer["rows"]],
        "rows_left_off": sum(answer.get("rows_left_off", 0) for answer in best.values()),
        "due_at": last["due_at"],
        "emitted_at": last["emitted_at"],
    }


def history_json(changes: Iterable[Body], start: str, key: str) -> list[dict[str, Any]]:
    """Return in order how the value of one key in one window came about; empty if nothing did."""
    steps: list[dict[str, Any]] = []
    for part, window in sorted(folded(changes).get(start, {}).items()):
        answers = [answer for answer in window.answers if _row(answer, key) is not None]
        before: Body | None = None
        for answer in answers:
            row = _row(answer, key)
            assert row is not None
            due, emitted = parse_time(answer["due_at"]), parse_time(answer["emitted_at"])
            step = {"what": answer["label"], "part": part, "seq": answer["seq"]}
            step |= {"at": answer["emitted_at"], "after_due_ms": (emitted - due) / 1_000}
            step |= {"missing": list(answer["missing"]), "fields": row["fields"]}
            if before is not None:
                step["difference"] = _difference(row["fields"], before["fields"])
            steps.append(step)
            before = row
        for undo in window.undone if answers else ():
            step = {"what": "undo", "part": part, "seq": undo["seq"], "at": undo["emitted_at"]}
            steps.append(step)
    return sorted(steps, key=lambda step: (step["part"], step["seq"]))


def _row(answer: Body, key: str) -> Body | None:
    return next((row for row in answer["rows"] if row["key"] == key), None)


def _difference(now: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """Return the later figures less the earlier ones; null where one of them is."""
    found: dict[str, Any] = {}
    for name, figures in now.items():
        if not isinstance(figures, dict):
            found[name] = _less(figures, before.get(name))
            continue
        was = before.get(name) or {}
        found[name] = {figure: _less(value, was.get(figure)) for figure, value in figures.items()}
    return found


def _less(now: float | None, before: float | None) -> float | None:
    return None if now is None or before is None else now - before
