"""rule-22 and rule-23, from the results alone: UNDO, answers, REC_DONE and epochs are in order."""

from __future__ import annotations

from tests.answer_history import History as AnswerHistory
from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts


def check(facts: Facts) -> None:
    """Each transaction keeps what the rules promise; raises at the first that does not."""
    history, config = facts.history, facts.config
    for part in range(config.parts):
        checker = AnswerHistory(config.first_window, config.slide_us)
        for committed in history.committed:
            if committed.part != part:
                continue
            try:
                checker.transaction(committed.transaction.effects)
            except AssertionError as error:
                raise Violation("order", committed.at, f"part {part}: {error}") from error
