"""rule-22 and rule-23, from the results alone: the order of UNDO, answers, REC_DONE and epochs."""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts
from tests.support.answer_history import History as AnswerHistory


def check(facts: Facts) -> None:
    """Check each transaction against the rules; raise at the first violation."""
    history, config = facts.history, facts.config
    for part in range(config.parts):
        checker = AnswerHistory(config.first_window, config.slide_us)
        for committed in history.committed:
            if committed.part != part:
                continue
            for effect in committed.transaction.effects:
                rows = len(committed.keys.get(effect.seq, ()))
                if getattr(effect, "rows", 0) != rows:
                    text = f"part {part}: {rows} rows where seq counts {effect}"
                    raise Violation("order", committed.at, text)
            try:
                checker.transaction(committed.transaction.effects)
            except AssertionError as error:
                raise Violation("order", committed.at, f"part {part}: {error}") from error
