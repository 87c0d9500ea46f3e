"""The history as a list of answers: the content of each transaction by window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.simulator.checkers.batch import figures
from tests.simulator.history import History, ReportedRows

from slackwater.protocols.dpc.soutput.answers import EmptyRun, StableWindow, TentativeWindow


class Violation(AssertionError):
    """Raised if a guarantee is violated."""

    def __init__(self, guarantee: str, at: int, text: str) -> None:
        super().__init__(f"{guarantee}: {text}")
        self.guarantee = guarantee
        self.at = at


class GivenAnswer(NamedTuple):
    """One answer of one window (runs of empty windows are split)."""

    at: int
    part: int
    window: int
    stable: bool
    missing: tuple[str, ...]
    rows: ReportedRows
    """The figures of each key; for a query without a window, those of its rows."""
    lost: tuple[str, ...] = ()
    """Streams whose readings retention has deleted."""
    epoch: int = 0
    skipped: bool = False
    """The window was overdue and not computed: it has no rows, and its content is unknown."""
    listed: Sequence[tuple[str, tuple[float, ...]]] = ()
    """Without a window: the rows themselves, time and values."""


def answers(history: History) -> Iterator[GivenAnswer]:
    """Return all answers in the order of the log."""
    slide = history.config.slide_us
    for committed in history.committed:
        for effect in committed.transaction.effects:
            match effect:
                case StableWindow() | TentativeWindow():
                    reported = committed.keys.get(effect.seq, [])
                    yield GivenAnswer(
                        committed.at, committed.part, effect.window_start,
                        isinstance(effect, StableWindow), getattr(effect, "missing", ()),
                        figures(reported) if history.config.rows else reported,
                        tuple(gap.stream for gap in effect.gap), effect.epoch,
                        listed=reported if history.config.rows else [],
                    )  # fmt: skip
                case EmptyRun():
                    for i in range(effect.windows):
                        window = effect.window_start + i * slide
                        yield GivenAnswer(
                            committed.at, committed.part, window, effect.stable, effect.missing,
                            [], (), effect.epoch, effect.skipped,
                        )  # fmt: skip


def name(history: History, window: int) -> str:
    """Format a window as in traces: seconds since the start; in a chain with its query."""
    config = history.config
    start = (window - config.start_time_us) / 1e6
    whose = "" if config.is_alone else config.name
    return f"{whose} W[{start:g}, {start + config.window_us / 1e6:g})".lstrip()
