"""Two copies of a part: one of them answers at a time, and few take-overs follow a failure.

Each term has one writer, which began it with a record, and which answers no more after it has
resigned; terms never decrease. Take-overs that no
fault explains would be a quarrel of two copies (trace-17). What one copy answers, the other one
holds as well (trace-57).
"""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts

DISAGREES = "disagrees with the copy that answers"
AT_START_MAX = 3
"""Take-overs of a part at the start of a run: both copies may find that nobody answers."""
PER_FAULT_MAX = 3
"""Take-overs for each fault: the other copy, the restarted one, and one in vain."""


def check(facts: Facts) -> None:
    """Check the writers of terms and the number of terms."""
    if facts.config.copies == 1:
        return
    for part in range(facts.config.parts):
        _one_writer(facts, part)
        _few_terms(facts, part)
    for note in facts.history.notes:
        if note.what.startswith(DISAGREES):
            raise Violation("copies", note.at, f"{note.process} {note.what}")


def _one_writer(facts: Facts, part: int) -> None:
    begun = [(t.at, t.state) for t in facts.history.tenures if t.part == part]
    answers = [(c.at, c.state) for c in facts.history.committed if c.part == part]
    resigned = {t.state.term: t.at for t in facts.history.resigned if t.part == part}
    writers: dict[int, tuple[str, int, int]] = {}
    for _, first in begun:
        if first.term in writers:
            raise Violation("terms", facts.history.ended_at, f"term {first.term} begins twice")
        writers[first.term] = (first.fragment, first.copy, first.placement)
    term = 0
    for at, state in answers:
        if state is None:
            continue
        if state.term < term:
            raise Violation("terms", at, f"term {state.term} answers after term {term}")
        term = state.term
        if at > resigned.get(term, at):
            raise Violation("terms", at, f"term {term} answers after its copy has resigned")
        writer = (state.fragment, state.copy, state.placement)
        if writers.get(term) != writer:
            raise Violation("terms", at, f"{writer} answers in term {term} of {writers.get(term)}")


def _few_terms(facts: Facts, part: int) -> None:
    history = facts.history
    begun = [t for t in history.tenures if t.part == part]
    resigned = sum(t.part == part for t in history.resigned)  # some are asked for by controllers
    most = AT_START_MAX + PER_FAULT_MAX * history.strikes + resigned
    if len(begun) > most:
        text = f"part {part} has {len(begun)} terms for {history.strikes} faults"
        raise Violation("terms", begun[most].at, text)
