"""guarantee-4, convergent: after the last failure every tentative answer is replaced.

REC_DONE confirms it. No further tentative answer follows for that failure: by their last
heartbeats, the lines of every orderer and every root have joined.
"""

from __future__ import annotations

from tests.simulator.checkers.answers import Violation
from tests.simulator.checkers.facts import Facts

from slackwater.protocols.dpc.soutput.answers import RecDone


def check(facts: Facts) -> None:
    """Check UNDO, one REC_DONE per epoch, and that all outputs are STABLE at the end."""
    history = facts.history
    _joined(facts)
    for part, answers in enumerate(facts.answers):
        stable = {answer.window for answer in answers if answer.stable}
        left = {answer.window for answer in answers if not answer.stable} - stable
        # A root whose clock was far ahead has answered future windows.
        to_come = {w for w in left if facts.config.grid.window_end(w) > facts.settled_to}
        if left := left - to_come:
            text = f"part {part}: {len(left)} tentative answers are left, {facts.name(min(left))}"
            raise Violation("convergent", history.ended_at, text)
        of_part = [c.transaction for c in history.committed if c.part == part]
        done = [e.epoch for t in of_part for e in t.effects if isinstance(e, RecDone)]
        epochs = max((t.after.epoch for t in of_part), default=0)
        is_open = bool(to_come) or facts.is_deleted
        if done not in (list(range(1, epochs + 1)), list(range(1, epochs + (not is_open)))):
            raise Violation("convergent", history.ended_at, f"REC_DONE of {done}, epochs: {epochs}")


def _joined(facts: Facts) -> None:
    """Check that the lines of a healthy output have joined (rule-18); a follower has none."""
    history = facts.history
    last = {answer.process: answer.what for answer in history.reported_states}
    for process, what in sorted(last.items()):
        if what not in {"says STABLE", "says FOLLOWING", "ended"}:
            raise Violation("convergent", history.ended_at, f"{process} still {what}")
