"""A root at a centre with two children, of which a site has the first: the core and its panes."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from tests.paper.stage import MS, Settings

from slackwater.model.heads import PaneColumns, PaneRecord, PaneRef
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Gap, LogPosition, Position
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.digests import recorded
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.common.inputs import ProbeEnds
from slackwater.protocols.dpc.soutput.answers import (
    GapNote,
    RecDone,
    StableWindow,
    TentativeWindow,
    Undo,
)
from slackwater.protocols.dpc.soutput.config import Commit, RootConfig, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.sessions.merged_input import MergedInput

SETTINGS = Settings(bucket_ms=100, window_ms=1_000, bound_ms=1_000)
NORTH, HERE = 0, 1
REPLICAS = 2
LOGS = [("sw.merged.q.0", child) for child in (NORTH, HERE)]
STEP_MS = 50
TURNS_MAX = 4
"""Turns at one time: to ask for the ends of logs, to answer, and to correct."""


def merged_pane(
    child: int, start_ms: int, end_ms: int = 0, *, value: float = 1.0, gap: tuple[Gap, ...] = ()
) -> MergedRecord:
    """Return a merged pane of one key, as an uplink writes it."""
    contents = Aggregates(KeyTable(), ("f",))
    figures = np.ones((6, 1, 1))
    figures[1:] = value
    columns = PaneColumns(("a",), figures, {})
    digest = recorded(contents.digest(contents.install([columns])))
    ref, end = PaneRef(child, start_ms * MS, 1, 1, digest), (end_ms or start_ms + 1_000) * MS
    none = LogPosition(0, 0, -1, Position(end))
    return MergedRecord(PaneRecord(ref, 0, columns), end, (none,) * REPLICAS, gap)


class Centre:
    """The root, in steps of 50 ms of wall time, which is the event time.

    The child ``HERE`` is in time. Both children have merged panes only, of which the root needs no
    more to know: what the deltas of a child do is tested elsewhere.
    """

    def __init__(self, remote: Iterable[int] = (NORTH, HERE)) -> None:
        self.config = RootConfig(
            "root/q.0", "q", 0, 1, (("at-north",), ("here",)), REPLICAS, ("f",), SETTINGS.grid,
            SETTINGS.schedule(2), start_time=0, bound_us=SETTINGS.bound_ms * MS,
            merged_wait_us=100 * MS, remote=frozenset(remote),
        )  # fmt: skip
        state = initial_state(self.config)
        self.core = RootCore(self.config, state, suppress_until={})
        self.core.begin_at(dict.fromkeys(self.config.logs, 0))
        self.merged = MergedInput(self.config)
        self.merged.continue_at(state, dict.fromkeys(LOGS, 0), dict.fromkeys(LOGS, 0))
        self.next = dict.fromkeys(LOGS, 0)
        self.now_ms = 0
        self.answers: list[tuple[int, str, int, tuple[str, ...]]] = []
        """(wall time in ms, kind, window start in ms, missing)."""
        self.lost: list[str] = []

    def receive(self, record: MergedRecord) -> None:
        """Take a record of a log of merged panes."""
        log = LOGS[record.pane.ref.child]
        self.merged.receive(self.core, log, self.next[log], record, self.now_ms * MS)
        self.next[log] += 1

    def run_to(self, until_ms: int, *children: int) -> None:
        """Go on; the panes of these children come 50 ms after their ends."""
        while self.now_ms < until_ms:
            self.now_ms += STEP_MS
            if self.now_ms % 1_000 == STEP_MS and self.now_ms > 1_000:
                for child in children:
                    self.receive(merged_pane(child, self.now_ms - STEP_MS - 1_000))
            self.step()

    def step(self) -> None:
        """Take some turns."""
        now = self.now_ms * MS
        self.merged.step(self.core, now)
        for _ in range(TURNS_MAX):
            for effect in self.core.step(now):
                if isinstance(effect, ProbeEnds):
                    self.core.ends(dict.fromkeys(effect.logs, 0), now)
                elif isinstance(effect, Commit):
                    for each in effect.transaction.effects:
                        self._note(each)
                    self.core.committed(now)

    def _note(self, effect: object) -> None:
        match effect:
            case StableWindow() | TentativeWindow():
                kind = "stable" if isinstance(effect, StableWindow) else "tentative"
                missing = tuple(getattr(effect, "missing", ()))
                self.answers.append((self.now_ms, kind, effect.window_start // MS, missing))
            case Undo():
                self.answers.append((self.now_ms, "undo", 0, ()))
            case RecDone():
                self.answers.append((self.now_ms, "rec_done", 0, ()))
            case GapNote(gap=gap):
                self.lost += [of.stream for of in gap]

    def of(self, kind: str) -> list[int]:
        """Return the starts of the windows that were answered in this way, in ms."""
        return [start for _, of, start, _ in self.answers if of == kind]
