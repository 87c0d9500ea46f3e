"""Checks a root part's results from the history of its transactions alone.

It reads the committed effects in order and raises at the first violation: at most one tentative and
exactly one stable answer per window, in window order; no answer is revoked without its replacement
in the same transaction, and no tentative one replaced without its UNDO; REC_DONE exactly when
nothing is left unrevoked; seqs without holes; epochs as in rule-22.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slackwater.protocols.dpc.soutput.answers import (
    Effect,
    EmptyRun,
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)

CORRECTIONS_MAX = 100
"""A run of empty windows counts as one."""
ROWS_MAX = 20_000


class History:
    """Checks one transaction after the other; window starts are ``slide`` apart from ``first``."""

    def __init__(self, first: int, slide: int) -> None:
        self.slide = slide
        self.next_seq = 0
        self.stable: list[int] = []
        self.tentative: list[int] = []
        self._answered: set[int] = set()
        self.unrevoked: dict[int, int] = {}  # window -> epoch
        self.epoch = 0
        self.first = first

    def transaction(self, effects: Sequence[Effect[Any]]) -> None:
        revoked: dict[int, int] = {}
        replaced: list[int] = []
        rows = corrections = 0
        order: list[int] = []
        left, done = len(self.unrevoked), False
        for effect in effects:
            self._seq(effect)
            match effect:
                case Undo():
                    order.append(0)
                    assert not revoked, "one UNDO in a transaction"
                    windows = list(range(effect.undo_from, effect.undo_to + 1, self.slide))
                    assert windows, "an UNDO must revoke an answer"
                    revoked = {w: self.unrevoked.pop(w) for w in windows}
                    assert set(revoked.values()) == {effect.epoch}
                    left = len(self.unrevoked)
                case GapNote():
                    order.append(1)
                case StableWindow() | EmptyRun(stable=True):
                    order.append(1)
                    windows = self._windows(effect)
                    rows += effect.rows if isinstance(effect, StableWindow) else 0
                    kinds = {w in revoked for w in windows}
                    assert len(kinds) == 1, "a run of empty windows never spans T"
                    assert self.unrevoked.keys().isdisjoint(windows), "replaced without an UNDO"
                    assert effect.epoch == revoked.get(windows[0], 0)
                    replaced += [w for w in windows if w in revoked]
                    corrections += windows[0] in revoked
                    self._append(self.stable, windows)
                case RecDone():
                    order.append(2)
                    done = True
                    assert revoked, "nothing has been corrected"
                    assert not self.unrevoked, "not all is corrected"
                    assert effect.epoch == self.epoch
                case TentativeWindow() | EmptyRun():
                    order.append(3)
                    windows = self._windows(effect)
                    if not self.unrevoked:
                        self.epoch += 1
                    assert effect.epoch == self.epoch
                    assert self._answered.isdisjoint(windows), "a second tentative answer"
                    assert windows[0] == self.next_unanswered(), "window order"
                    self.tentative += windows
                    self._answered.update(windows)
                    self.unrevoked |= dict.fromkeys(windows, self.epoch)
        assert order == sorted(order), "UNDO, stable answers, REC_DONE, tentative answers"
        assert replaced == sorted(revoked), "it is replaced in the same transaction"
        if revoked:
            assert done == (left == 0), "REC_DONE exactly when nothing is left unrevoked"
        assert corrections <= CORRECTIONS_MAX
        assert rows <= ROWS_MAX or len(replaced) <= 1

    def next_unanswered(self) -> int:
        answered = [*self.stable[-1:], *self.tentative[-1:]]
        return max(answered) + self.slide if answered else self.first

    def _seq(self, effect: Effect[Any]) -> None:
        first = effect.seq
        if isinstance(effect, StableWindow | TentativeWindow):
            first = effect.first_seq
            assert effect.seq - first == effect.rows, "rows, then the boundary"
        assert first == self.next_seq, "a hole in seq, or a seq used twice"
        self.next_seq = effect.seq + 1

    def _windows(self, effect: StableWindow[Any] | TentativeWindow[Any] | EmptyRun) -> list[int]:
        count = effect.windows if isinstance(effect, EmptyRun) else 1
        return [effect.window_start + i * self.slide for i in range(count)]

    def _append(self, answers: list[int], windows: list[int]) -> None:
        expected = answers[-1] + self.slide if answers else self.first
        assert windows[0] == expected, "window order, each once"
        answers += windows
        self._answered.update(windows)
