"""A core that continues from a head equals one that has read everything (Flux, 3.3.1; trace-61)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.model.deployment import WindowSpec
from slackwater.model.heads import Head
from slackwater.model.records import DeltaRecord, Gap, Kind, LogState, Position, RootState
from slackwater.primitives.deltas import Aggregates
from slackwater.primitives.key_table import KeyTable
from slackwater.primitives.windows import Grid
from slackwater.protocols.common.line import LineName, Schedule
from slackwater.protocols.dpc.soutput.config import DeltaLog, RootConfig, initial_state
from slackwater.protocols.dpc.soutput.core import RootCore
from slackwater.protocols.dpc.soutput.heads import HeadCut, Kept, Moved, fits_head, position_in

KEYS = tuple("abcdefgh")
WIDTH, END, REPLICAS = 10, 240, 2
NEVER_DUE = Schedule(lambda _: None, 0)
Log = list[DeltaRecord]


def config(slide: int = 30) -> RootConfig:
    """Return the configuration of a root of one child, with windows of 240 us."""
    grid = Grid(WIDTH, WindowSpec(END, slide))
    return RootConfig(
        "root/q.0", "q", 0, 1, (("s",),), REPLICAS, ("v",), grid, NEVER_DUE, start_time=0,
        bound_us=1_000_000,
    )  # fmt: skip


def logs_of(rng: Random, *, gaps: bool) -> list[Log]:
    """Return the stable deltas of two replicas: the same buckets in pieces, some written twice."""
    buckets = [list(_bucket(rng, start, gaps=gaps)) for start in range(0, END, WIDTH)]
    return [_log(rng, replica, buckets) for replica in range(REPLICAS)]


def _bucket(rng: Random, start: int, *, gaps: bool) -> Iterator[DeltaRecord]:
    pieces = rng.randint(1, 3)
    keys = sorted(rng.sample(KEYS, rng.randint(pieces, len(KEYS))))
    gap = (Gap("s", 1),) if gaps and rng.random() < 0.1 else ()
    cuts = [round(at * len(keys) / pieces) for at in range(pieces + 1)]
    for piece, (first, last) in enumerate(pairwise(cuts)):
        of = tuple(keys[first:last])
        figures = [np.array([[rng.uniform(-9, 9) for _ in of]]) for _ in range(5)]
        yield DeltaRecord(
            Kind.INSERTION, 0, 0, 0, start, start + WIDTH, 0, piece, pieces, gap=gap, keys=of,
            fields=("v",), count=np.ones((1, len(of))), sum=figures[1], m2=np.abs(figures[2]),
            min=figures[3], max=figures[4],
        )  # fmt: skip


def _log(rng: Random, replica: int, buckets: list[list[DeltaRecord]]) -> Log:
    start = DeltaRecord(Kind.START, 0, replica, -1, 0, 0, 0, frontier=Position(0))
    log, inc, at = [start], 0, 0
    while at < len(buckets):
        if rng.random() < 0.05 and at:
            at = rng.randrange(at)  # the writer has started again, and sends again
            inc = len(log)
            frontier = Position(at * WIDTH)
            log.append(replace(start, seq=inc, frontier=frontier))
        for piece in buckets[at]:
            log.append(replace(piece, replica=replica, inc=inc, seq=len(log)))
        at += 1
    return log


@dataclass
class Reader:
    """A core, and where its readers are in the logs."""

    core: RootCore
    logs: list[Log]

    def step(self, rng: Random) -> bool:
        """Read one record of a log; False if there is none."""
        wanted = {
            log.replica: offset
            for (line, log), offset in self.core.wanted().items()
            if line is LineName.STABLE and offset < len(self.logs[log.replica])
        }
        live = {
            log.replica: offset
            for log, offset in self.core.live_offsets.items()
            if log.line is LineName.STABLE and offset < len(self.logs[log.replica])
        }
        if not (wanted or live):
            return False
        replica = rng.choice([*wanted, *live])
        log = DeltaLog(0, replica, LineName.STABLE)
        if replica in wanted and (replica not in live or rng.random() < 0.5):
            offset = wanted[replica]
            self.core.catch_up(LineName.STABLE, log, offset, self.logs[replica][offset])
        else:
            self.core.receive(log, live[replica], self.logs[replica][live[replica]])
        return True

    def read_all(self, rng: Random) -> None:
        """Read to the ends of the logs."""
        while self.step(rng):
            pass


def core_of(state: RootState, moved: Moved | None = None, slide: int = 30) -> RootCore:
    """Return a core that starts at this state record."""
    return RootCore(config(slide), state, suppress_until={}, moved=moved)


def head_of(cut: HeadCut) -> Head:
    """Return a head without references."""
    answered = cut.answered
    numbers = (answered.next_seq, answered.epoch, answered.stable_from, answered.answered_to)
    return Head(1, 1, *numbers, cut.frontiers, cut.noted, (), cut.logs)


def moved(core: RootCore, keys: KeyTable) -> Moved:
    """Return the state of a core as another process installs it."""
    cut, into = core.movable.cut(), Aggregates(keys, ("v",))
    of = core.contents
    assert isinstance(of, Aggregates)
    panes = {
        at: into.install([of.extract(pane, piece) for piece in range(of.pieces(pane))])
        for at, pane in cut.panes.items()
    }
    return Moved(head_of(cut), panes, keys, into)


def held_by(core: RootCore) -> object:
    """Return what the stable line holds, whatever the numbers of its keys are."""
    cut = core.movable.cut()
    panes = {at: pane.to_bytes(core.keys) for at, pane in cut.panes.items()}
    return cut.frontiers, panes, cut.noted


def seqs_of(core: RootCore) -> list[int]:
    """Return the seq below which each log has been read."""
    return [log.contiguous_seq for log in core.state.logs]


@settings(max_examples=80)
@given(
    st.integers(0, 1 << 32),
    st.integers(0, 120),
    st.sampled_from([30, 80, 240]),
    st.booleans(),
)
def test_it_equals_one_that_has_read_everything(
    seed: int, steps: int, slide: int, gaps: bool
) -> None:
    rng = Random(seed)
    logs, state = logs_of(rng, gaps=gaps), initial_state(config(slide))
    first = Reader(core_of(state, slide=slide), logs)
    for _ in range(steps):
        first.step(rng)
    keys = KeyTable()
    keys.indices(tuple(rng.sample(KEYS, len(KEYS))))
    found = moved(first.core, keys)
    assert fits_head(config(slide), state, found.head)
    second = Reader(core_of(state, found, slide), logs)
    assert held_by(second.core) == held_by(first.core)
    for reader in (first, second):
        reader.read_all(rng)
    assert first.core.movable.cut().frontiers == (END,)
    assert seqs_of(second.core) == seqs_of(first.core)
    assert held_by(second.core) == held_by(first.core)


def test_a_bucket_that_has_begun_is_read_again_from_its_first_piece() -> None:
    rng = Random(3)
    core = core_of(initial_state(config()))
    log = DeltaLog(0, 0, LineName.STABLE)
    records = logs_of(rng, gaps=False)[0]
    at = next(
        i
        for i, of in enumerate(records)
        if of.bucket_start > max((each.bucket_start for each in records[:i]), default=0)
        and of.pieces > 1
    )
    for offset, record in enumerate(records[: at + 1]):
        core.receive(log, offset, record)
    child = core._children[0]
    assert child.stable.frontier == Position(records[at].bucket_start, 1)
    assert position_in(child.stable, 0).offset == at
    assert core.movable.cut().frontiers == (records[at].bucket_start,)


def test_a_later_state_record_leaves_out_what_is_answered() -> None:
    rng = Random(5)
    logs, state = logs_of(rng, gaps=False), initial_state(config())
    first = Reader(core_of(state), logs)
    for _ in range(60):
        first.step(rng)
    found, frontier = moved(first.core, KeyTable()), first.core.movable.cut().frontiers[0]
    assert frontier >= 90
    later = replace(state, next_seq=3, stable_from=60, answered_to=60)
    assert fits_head(config(), later, found.head)
    core = core_of(replace(later, child_frontiers=(Position(60),)), found)
    assert core.movable.cut().frontiers == (frontier,)
    assert min(start for _, start in core.movable.cut().panes) == 60
    past = replace(later, stable_from=frontier + 30, answered_to=frontier + 30)
    assert not fits_head(config(), past, found.head), "S has passed it"
    assert not fits_head(config(), state, replace(found.head, next_seq=1)), "it is later"
    assert not fits_head(config(), state, replace(found.head, logs=()))


def test_what_two_heads_need_is_in_the_state_record() -> None:
    rng = Random(5)
    logs = logs_of(rng, gaps=False)
    reader = Reader(core_of(initial_state(config())), logs)
    heads = []
    for _ in range(2):
        for _ in range(20):
            reader.step(rng)
        heads.append(head_of(reader.core.movable.cut()))
    assert reader.core.state.kept_from == ()
    reader.core.movable.kept = Kept.of_heads(*heads)
    state = reader.core.state
    firsts = [min(log.first for log in each) for each in zip(*(h.logs for h in heads), strict=True)]
    assert list(state.kept_from) == firsts
    assert state.moved_to == heads[0].frontiers
    assert Kept.of_state(state) == replace(reader.core.movable.kept)
    assert Kept.of_state(replace(state, logs=state.logs[:1])) is None
    assert not reader.core.movable.is_behind(state.moved_to)
    assert core_of(initial_state(config())).movable.is_behind(state.moved_to)


def test_positions_at_s_stay_in_the_state_record() -> None:
    """A root that finds no head continues there."""
    rng = Random(7)
    logs, state = logs_of(rng, gaps=False), initial_state(config())
    reader = Reader(core_of(state), logs)
    for _ in range(60):
        reader.step(rng)
    found = moved(reader.core, KeyTable())
    after: tuple[LogState, ...] = core_of(state, found).state.logs
    assert [(log.stable, log.live) for log in after] == [
        (log.stable, log.live) for log in state.logs
    ]
