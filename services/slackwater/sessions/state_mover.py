"""The part of a root's session that moves state: it installs a head, and writes heads.

``protocols.flux.movement`` decides what is written, ``protocols.dpc.soutput.heads`` takes the state
out of the core and puts it back. A start reads the panes before the state record, so the record is
at least as new as each head that is found. While it installs panes it lets other sessions take
turns: these answer.

The copy that answers writes. It looks first at what others have stored, once it would take long to
read again: after that it writes what is not there yet. It writes outside transactions, since nobody
depends on it.
"""

from __future__ import annotations

from typing import Any, Final

from slackwater.model.errors import SlackwaterError
from slackwater.model.heads import Head, PaneKey, PaneRef, StoredState
from slackwater.model.records import RootState
from slackwater.primitives.deltas import Aggregates, Slice
from slackwater.primitives.digests import recorded
from slackwater.primitives.key_table import KeyTable
from slackwater.protocols.common.pane_writing import STEP_CELLS, TURN_CELLS_MAX
from slackwater.protocols.dpc.soutput.config import RootConfig
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.heads import HeadCut, Kept, Moved, fits_head
from slackwater.protocols.flux.movement import PLACES, HeadPace, HeadWriter, complete_heads
from slackwater.sessions.effects import Effect, LogLine, Perform, StorePane
from slackwater.sessions.requests import Log, OtherTurns, Procedure, ReadPanes

LOOK_PERIOD_US: Final = 100_000
"""Longest interval at which it is seen whether a head is to be written."""
READS_MAX: Final = 2
"""A writer may delete panes while they are read. Then the heads are later ones, too."""


class StateMover:
    """Installs the newest head that is complete, and writes heads while its copy answers."""

    def __init__(self, config: RootConfig, *, windowed: bool) -> None:
        self._config = config
        self._pace = HeadPace(config.reread_us_max, config.head_period_us)
        self._is_used = windowed
        self.log: Log = (config.topics.panes(config.query), config.part)
        self._writer: HeadWriter[Slice] | None = None
        self._stored = StoredState()
        self._lines: list[LogLine] = []
        self._newest: Head | None = None
        self._is_reading = False
        self._looked_at = 0
        self._written = 0
        self.installed: Moved | None = None
        """The head from which the core continues."""

    # Start.

    def install(self, state: RootState) -> Procedure[Moved | None]:
        """Return the newest head that can be used in place of S of the state record."""
        config, stored = self._config, self._stored
        pieces = stored.pieces or {}
        for head in complete_heads(stored.heads, pieces.keys(), state.stable_from):
            if fits_head(config, state, head):
                moved = yield from self._install(head, state.stable_from)
                if moved is not None:
                    self.installed = moved
                    panes = len(moved.panes)
                    self._lines.append(LogLine(f"continues from a head with {panes} panes"))
                    return moved
                self._lines.append(LogLine("a head has damaged panes", is_warning=True))
        self._stored = StoredState()
        return None

    def read(self) -> Procedure[None]:
        """Read what is stored; call it before the state record is read."""
        config = self._config
        for _ in range(READS_MAX if self._is_used else 0):
            stored: StoredState = yield ReadPanes(config.query, config.part)
            self._stored, heads, present = stored, stored.heads, (stored.pieces or {}).keys()
            if not heads or complete_heads(heads, present, max(h.stable_from for h in heads)):
                return

    def _install(self, head: Head, stable_from: int) -> Procedure[Moved | None]:
        config = self._config
        keys = KeyTable(kept_keys_min=config.kept_keys_min)
        contents = config.contents(keys, config.fields)
        assert isinstance(contents, Aggregates), "only aggregates are moved"
        panes: dict[tuple[int, int], Any] = {}
        cells = 0
        for ref in head.panes:
            if ref.start < stable_from:
                continue
            value = self._pane(contents, ref, max(head.frontiers))
            if value is None or len(value) != ref.rows:
                return None
            pieces, of_pieces = contents.pieces(value), []
            for piece in range(pieces):
                of_pieces.append(contents.digest_of_piece(value, piece))
                cells += contents.cells(value) // pieces + STEP_CELLS
                if cells >= TURN_CELLS_MAX:
                    cells = 0
                    yield OtherTurns()
            if recorded(contents.total_digest(of_pieces)) != ref.digest:
                return None
            panes[ref.child, ref.start] = value
        self._stored = StoredState()
        return Moved(head, panes, keys, contents)

    def _pane(self, contents: Aggregates, ref: PaneRef, needed_to: int) -> Slice | None:
        """Return a pane; None if it is one of another query."""
        stored = self._stored.pieces or {}
        found = [stored[PaneKey(ref, piece)].columns for piece in range(ref.pieces)]
        try:
            return contents.install(found, needed_to)
        except ValueError:
            return None

    # While the copy answers.

    def step(self, core: RootCore, term: int, now: int) -> list[Effect]:
        """Write what is due, in a bounded turn; call it before the core's step."""
        effects: list[Effect] = []
        if not self._is_used:
            return effects
        if now - self._looked_at >= min(LOOK_PERIOD_US, self._pace.period_us):
            self._looked_at = now
            self._look(core, term, now, effects)
        if self._writer is not None:
            effects += [StorePane(self.log, *each) for each in self._writer.write()]
            self._keep(core, self._writer)
            core.movable.writes_from = self._writer.writes_from
        return effects

    def _look(self, core: RootCore, term: int, now: int, effects: list[Effect]) -> None:
        if self._writer is None:
            is_needed = (
                core.movable.kept is not None
                or core.movable.reread_us(None) >= self._pace.reread_us_max
            )
            if is_needed and not self._is_reading:
                self._is_reading = True
                effects.append(Perform(self._look_at_stored(core, term)))
        elif not core.awaits_commit and self._writer.may_cut(now, core.movable.reread_us):
            cut = core.movable.cut()
            self._writer.cut(_head_of(cut), cut.panes, now)

    def _look_at_stored(self, core: RootCore, term: int) -> Procedure[None]:
        """Find out what has been stored; nobody else writes a later head, behind the fence."""
        config, contents = self._config, core.contents
        assert isinstance(contents, Aggregates), "only aggregates are moved"
        try:
            stored: StoredState = yield ReadPanes(config.query, config.part, keys_only=True)
        except SlackwaterError:
            return  # at the next look again
        finally:
            self._is_reading = False
        stable_from = core.answers.state.stable_from
        self._writer = HeadWriter(term, contents, stored, stable_from, self._pace)

    def _keep(self, core: RootCore, writer: HeadWriter[Slice]) -> None:
        """Record in each state record what the two heads need, once they are stored."""
        heads = writer.heads
        if len(heads) == PLACES and heads[-1] is not self._newest:
            core.movable.kept = Kept.of_heads(*heads)
            self._newest = heads[-1]
            self._written += 1

    def lines(self) -> list[LogLine]:
        """Return the lines that have not been written yet."""
        found, self._lines = self._lines, []
        return found

    def delivered(self) -> None:
        """Record that the next of the stored records is in the log."""
        if self._writer is not None:
            self._writer.acknowledged()

    @property
    def is_busy(self) -> bool:
        """Whether there is more to write at once."""
        return self._writer is not None and self._writer.is_busy

    def detail(self, core: RootCore) -> dict[str, int]:
        """Return the counters of the heartbeat."""
        if not self._is_used:
            return {}
        installed = 0 if self.installed is None else len(self.installed.panes)
        read = core.movable.records_read
        return {"heads": self._written, "installed": installed, "read": read}


def _head_of(cut: HeadCut) -> Head:
    answered = cut.answered
    return Head(
        term=0,
        number=0,
        next_seq=answered.next_seq,
        epoch=answered.epoch,
        stable_from=answered.stable_from,
        answered_to=answered.answered_to,
        frontiers=cut.frontiers,
        noted=cut.noted,
        panes=(),
        logs=cut.logs,
    )
