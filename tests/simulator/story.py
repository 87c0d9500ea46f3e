"""Acts of a scenario on a run, and queries of its history, for readable scenarios.

Times are seconds since the start of the run; windows are identified by their start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.simulator.checkers import check
from tests.simulator.checkers.answers import answers
from tests.simulator.clock import SECOND
from tests.simulator.history import History
from tests.simulator.world import START_TIME_US, World, WorldConfig

from slackwater.model.names import ONLY
from slackwater.protocols.dpc.soutput.answers import RecDone, Undo
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.sunion.core import OrdererCore


class StoryAnswer(NamedTuple):
    """One answer: its time, its window, its missing streams."""

    at: float
    window: float
    missing: tuple[str, ...]
    skipped: bool = False


class Questions:
    """Queries of a query's history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.config = history.config

    @property
    def reader(self) -> Questions:
        """The same for the query that reads this one's results or children."""
        history = self.history.of_reader
        assert history is not None
        return Questions(history)

    @property
    def tentative(self) -> list[StoryAnswer]:
        """All tentative answers, in order."""
        return self._sent(stable=False)

    @property
    def stable(self) -> list[StoryAnswer]:
        """All stable answers, in order."""
        return self._sent(stable=True)

    def _sent(self, *, stable: bool) -> list[StoryAnswer]:
        return [
            StoryAnswer(seconds(s.at), (s.window - START_TIME_US) / SECOND, s.missing, s.skipped)
            for s in answers(self.history)
            if s.stable is stable
        ]

    @property
    def undone(self) -> list[tuple[float, float]]:
        """First and last window of each UNDO."""
        return [
            ((e.undo_from - START_TIME_US) / SECOND, (e.undo_to - START_TIME_US) / SECOND)
            for e in self._effects()
            if isinstance(e, Undo)
        ]

    @property
    def rec_done(self) -> list[int]:
        """The epochs of REC_DONE."""
        return [e.epoch for e in self._effects() if isinstance(e, RecDone)]

    def _effects(self) -> list[Any]:
        return [e for c in self.history.committed for e in c.transaction.effects]

    def latest_first_answer_s(self, since_s: float = 0.0) -> float:
        """The longest time from a window's normal time to its first answer."""
        seen: set[float] = set()
        worst = -1e9
        for answer in answers(self.history):
            if answer.window in seen:
                continue
            seen.add(answer.window)
            end = self.config.grid.window_end(answer.window)
            due = max(end + self.config.lateness({}).at(end), self.config.begin_us or 0)
            if seconds(due) >= since_s:
                worst = max(worst, (answer.at - due) / SECOND)
        return worst

    def held(self, since_s: float = 0.0) -> dict[str, int]:
        """Return the maximum memory of each process since a time."""
        most: dict[str, int] = {}
        for sample in self.history.samples:
            if seconds(sample.at) >= since_s:
                for name, held in sample.held.items():
                    most[name] = max(most.get(name, 0), held)
        return most


class Story(Questions):
    """A run, its acts, and queries of its history."""

    def __init__(self, seed: int = 1, **config: Any) -> None:
        self.world = World(seed, WorldConfig(**config))
        super().__init__(self.world.history)
        self.world.start()

    # Acts.

    def time_passes(self, for_s: float) -> None:
        self.world.run(us(for_s))

    def silence(self, stream: str, *, for_s: float) -> None:
        """Cut the link of the stream's proxy; it has a backlog afterwards."""
        self.world.silence(stream, us(for_s))

    def set_device(self, stream: str, *, for_s: float, by_s: float) -> None:
        """Set the clock of one of the stream's devices ahead, or behind."""
        self.world.set_device(stream, us(for_s), us(by_s))

    def kill(self, name: str) -> None:
        """Kill -9; the supervisor restarts the process."""
        self.history.strikes += 1
        self.world.kill(name)

    def stop(self, name: str) -> None:
        """SIGTERM; the supervisor restarts the process."""
        self.history.strikes += 1
        self.world.stop(name)

    def report_dead(self, name: str) -> None:
        """Report that the process has ended, truly or falsely."""
        self.history.strikes += 1
        self.world.report_dead(name)

    def kill_for_good(self, name: str) -> None:
        """Kill -9; the process stays down until ``start_again``."""
        self.world.kill(name, stays_down=True)

    def start_again(self, name: str) -> None:
        self.world.bring_back(name)

    def pause(self, name: str, *, for_s: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        self.world.pause(name, us(for_s))

    def replace(self, name: str, *, wakes_after_s: float) -> None:
        """Pause a process, start another in its place; the old one resumes as a zombie."""
        self.world.pause(name, us(wakes_after_s), replaced=True)

    def overload(self, name: str, *, for_s: float, unit_s: float) -> None:
        """Make a window, a bucket or ten records take this much longer."""
        self.world.overload(name, us(for_s), us(unit_s))

    def deafen(self, orderer: str, stream: str, *, for_s: float) -> None:
        """Stop the orderer's consumer from fetching the stream (trace-34)."""
        self.world.deafen(orderer, stream, us(for_s))

    def all_is_well_again(self, for_s: float = 8) -> None:
        """End all faults, and let time pass."""
        self.world.heal()
        self.time_passes(for_s)

    def every_guarantee_holds(self) -> None:
        """Run all checkers over the history so far."""
        check(self.world.finish())

    # The running processes.

    def orderer(self, child: int = 0, replica: int = 0) -> OrdererCore:
        core = self.world.q.orderers[child, replica].core
        assert core is not None, "it has not started yet"
        return core

    def root(self, part: int = 0) -> RootCore:
        core = self.world.q.roots[part, ONLY].core
        assert core is not None, "it has not started yet"
        return core


def us(s: float) -> int:
    """Convert seconds to microseconds."""
    return round(s * SECOND)


def seconds(at: int) -> float:
    """Convert to seconds since the start of the run."""
    return (at - START_TIME_US) / SECOND
