"""Guarantee 3, honest: what a tentative answer lacks it names.

Each stream has keys of its own. If a tentative answer has not all readings of such a key, the
stream must be among ``missing``; and what it has, it must not have twice.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation, answers, name
from tests.simulator.checkers.batch import Rows, accepted, same, windows
from tests.simulator.world import History


def check(history: History) -> None:
    """Every tentative answer names every stream whose readings it lacks."""
    config = history.config
    readings = [accepted(log) for log in history.source_logs.values()]
    for part in range(config.parts):
        whole = windows(config, readings, part)
        for said in answers(history):
            if said.part != part or said.stable:
                continue
            rows = dict(said.rows)
            wanted: Rows = whole.get(said.window, {})
            for key in sorted(rows.keys() | wanted.keys()):
                have, want = rows.get(key), wanted.get(key)
                stream = key.partition("/")[0]
                if have is not None and (want is None or have[0] > want[0]):
                    text = f"tentative {name(history, said.window)} {key} counts {have}, not {want}"
                    raise Violation("honest", said.at, text)
                lacks = want is not None and (have is None or not same(have, want))
                if lacks and "/" in key and stream not in said.missing:
                    text = f"tentative {name(history, said.window)} lacks readings of {stream} "
                    text += f"({key}: {have}, not {want}), but misses only {said.missing}"
                    raise Violation("honest", said.at, text)
                if lacks and "/" not in key and not said.missing:
                    text = f"tentative {name(history, said.window)} lacks {key}, misses nothing"
                    raise Violation("honest", said.at, text)
