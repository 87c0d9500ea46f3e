"""Guarantee 1, exact: stable results equal the batch computation, for every window, once each."""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation, answers, name
from tests.simulator.checkers.batch import accepted, same, windows
from tests.simulator.world import History


def check(history: History, settled_to: int) -> None:
    """Every window that ends by ``settled_to`` has exactly one stable answer, the right one."""
    config = history.config
    readings = [accepted(log) for log in history.source_logs.values()]
    slide = config.slide_us
    for part in range(config.parts):
        expected = windows(config, readings, part)
        next_window = config.first_window
        for said in answers(history):
            if said.part != part or not said.stable:
                continue
            if said.window != next_window:
                text = f"part {part}: {name(history, said.window)} is answered for good, "
                raise Violation("exact", said.at, text + f"{name(history, next_window)} is next")
            next_window += slide
            rows = dict(said.rows)
            keys = [key for key, _ in said.rows]
            if keys != sorted(set(keys)):
                raise Violation("exact", said.at, f"rows of {name(history, said.window)}: {keys}")
            wanted = expected.get(said.window, {})
            if said.lost:
                continue
            for key in sorted(rows.keys() | wanted.keys()):
                if key not in rows or key not in wanted or not same(rows[key], wanted[key]):
                    text = f"{name(history, said.window)} {key}: {rows.get(key)}"
                    raise Violation("exact", said.at, f"{text}, the batch has {wanted.get(key)}")
        if config.grid.window_end(next_window) <= settled_to:
            text = f"part {part}: {name(history, next_window)} has no stable answer at the end"
            raise Violation("exact", history.ended_at, text)
