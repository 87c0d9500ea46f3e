"""guarantee-3, honest: a tentative answer names the streams that it lacks.

Each stream has its own keys. If a tentative answer does not have all readings of such a key, the
stream must be in ``missing``, or the query through which it is read; and no reading may be counted
twice. A skipped answer has no rows, and is marked.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import GivenAnswer, Violation
from tests.simulator.checkers.batch import Rows, has_row, no_more, same
from tests.simulator.checkers.facts import Facts


def check(facts: Facts) -> None:
    """Check that every tentative answer names every stream whose readings it lacks."""
    for part, answers in enumerate(facts.answers):
        for answer in answers:
            if not answer.stable and not answer.skipped:
                _named(facts, answer, facts.expected[part].get(answer.window, {}))


def _named(facts: Facts, answer: GivenAnswer, wanted: Rows) -> None:
    rows = dict(answer.rows)
    # What a topic has lost is in no source log, so the batch lacks it as well.
    unlogged = {*answer.missing, *(facts.may_lose & {*answer.lost})}
    for key in sorted(rows.keys() | wanted.keys()):
        have, want = rows.get(key), wanted.get(key)
        if have is not None and (want is None or not no_more(have, want)):
            text = f"tentative {facts.name(answer.window)} {key} counts {have}, not {want}"
            raise Violation("honest", answer.at, text)
        if have is not None and not has_row(facts.config, have):
            text = f"tentative {facts.name(answer.window)} {key} has a row with {have}"
            raise Violation("honest", answer.at, text)
        if want is None or (have is not None and same(have, want)):
            continue
        stream = key.partition("/")[0]
        if "/" in key and stream not in unlogged and not facts.is_above(unlogged, stream):
            text = f"tentative {facts.name(answer.window)} lacks readings of {stream} "
            text += f"({key}: {have}, not {want}), but misses only {answer.missing}"
            raise Violation("honest", answer.at, text)
        if "/" not in key and not unlogged:
            text = f"tentative {facts.name(answer.window)} lacks {key}, misses nothing"
            raise Violation("honest", answer.at, text)
