"""The whole system in virtual time: sensors to results, under one seed.

A ``World`` wires the product's own cores with the models of Kafka, the sensors and the aggregator,
supervises the processes as the real supervisor does, and keeps the *history*: what was committed,
when, and which faults there were. Checkers see the history and the source logs, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tests.simulator.aggregator import SimAggregator
from tests.simulator.clock import Scheduler, ms, second
from tests.simulator.heartbeats import Heartbeats
from tests.simulator.kafka import Broker, Log
from tests.simulator.orderers import SimOrderer
from tests.simulator.process import Process
from tests.simulator.readings import Habits, Sensor
from tests.simulator.roots import SimRoot, newest_root_state
from tests.simulator.sources import FIELDS, SimProxy, Spool

from slackwater.model.deployment import WindowSpec
from slackwater.model.records import OrdererState, RootState, SourceRecord
from slackwater.primitives.deltas import KeyTable
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.answers import Transaction
from slackwater.protocols.dpc.line import PROCESS, Policy, Schedule
from slackwater.protocols.dpc.orderer import OrdererConfig
from slackwater.protocols.dpc.root import Commit, RootConfig

E0_US = 1_000_000 * second
"""When a world begins: a round number, so that traces can be read."""


@dataclass(frozen=True)
class WorldConfig:
    """What is simulated; times in us. ``children`` lists the streams of each child."""

    children: tuple[tuple[str, ...], ...] = (("s1", "s2"),)
    replicas: int = 2
    parts: int = 1
    window_us: int = 1 * second
    slide_us: int = 1 * second
    w_us: int = 100 * ms
    bound_us: int = 2 * second
    margin_us: int = 50 * ms
    policy: Policy = PROCESS
    disorder_us: int = 20 * ms
    expect_every_us: dict[str, int] = field(default_factory=dict)
    habits: Habits = field(default_factory=Habits)
    e0_us: int = E0_US
    record_readings_max: int = 10_000
    piece_bytes_max: int = 8 << 20
    ahead_buckets_max: int = 600
    ahead_bytes_max: int = 256 << 20
    backlog_records_max: int = 1000
    zombie_us: tuple[int, int] = (0, 400 * ms)
    """How long a process that was replaced works on."""
    record_us: int = 30
    """What it takes an orderer to read a record that it needs."""
    aggregate_us: int = 0
    """What it takes an aggregator's task to make the deltas of a record."""
    live_records_max: int = 100
    """Most records that an orderer's consumer gives it of one log at a time."""
    fetch_us: tuple[int, int] = (500, 4 * ms)
    restart_us: tuple[int, int] = (300 * ms, 900 * ms)

    @cached_property
    def grid(self) -> Grid:
        """Buckets and windows."""
        return Grid(self.w_us, WindowSpec(self.window_us, self.slide_us))

    @property
    def streams(self) -> tuple[str, ...]:
        """All streams, in the children's order."""
        return tuple(s for child in self.children for s in child)

    @property
    def lateness_us(self) -> int:
        """Rule 15."""
        return self.disorder_us + max(self.expect_every_us.values(), default=0)

    @property
    def first_window(self) -> int:
        """The first window that holds E0."""
        return self.grid.first_window_holding(self.e0_us)

    def answer_within_us(self, stage: int) -> int:
        """The ladder of deadlines (R13): stage 1 orderer, 2 root."""
        return self.bound_us - (2 - stage + 1) * self.margin_us

    def normal_time(self, e: int) -> int:
        """Event time is wall time here."""
        return e + self.lateness_us


class Committed(NamedTuple):
    """One transaction of a part, as a read-committed reader sees it."""

    at: int
    part: int
    placement: int
    transaction: Transaction[Any]
    keys: dict[int, list[tuple[str, tuple[float, ...]]]]
    """Rows of each window: key, and (count, sum, m2, min, max) of the one field."""


class Note(NamedTuple):
    """Something that happened to a process."""

    at: int
    process: str
    what: str


class Sample(NamedTuple):
    """What the processes held in memory at a time: bytes of readings, buckets, windows."""

    at: int
    held: dict[str, int]


@dataclass
class History:
    """What a checker may see."""

    config: WorldConfig
    committed: list[Committed] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    unavailable: list[tuple[int, int]] = field(default_factory=list)
    """Times at which some stage had no copy that could work (G2 does not hold then)."""
    source_logs: dict[str, list[tuple[int, SourceRecord]]] = field(default_factory=dict)
    ended_at: int = 0


class World:
    """A deployment with one query."""

    def __init__(self, seed: int, config: WorldConfig | None = None) -> None:
        self.seed = seed
        self.config = config or WorldConfig()
        self.scheduler = Scheduler(seed, self.config.e0_us)
        self.broker = Broker(self.scheduler)
        self.heartbeats = Heartbeats(self)
        self.history = History(self.config)
        self.skew_us: dict[str, int] = {}
        self.spools = {s: Spool() for s in self.config.streams}
        self.sensors = {
            s: Sensor(s, seed, self.config.habits, self.config.e0_us) for s in self.config.streams
        }
        self.proxies: dict[str, SimProxy] = {}
        self.orderers: dict[tuple[int, int], SimOrderer] = {}
        self.aggregators: dict[str, SimAggregator] = {}
        self.roots: dict[int, SimRoot] = {}
        self.held_down: set[str] = set()
        """Names of processes that the supervisor does not start again."""
        self._placements = 0
        self._down: dict[str, int] = {}

    # Supervision.

    def start(self) -> None:
        """Start everything."""
        for stream in self.config.streams:
            self._start(f"proxy/{stream}")
        for child in range(len(self.config.children)):
            for replica in range(self.config.replicas):
                self._start(self.orderer_name(child, replica))
        for name in self.aggregator_names:
            self._start(name)
        for part in range(self.config.parts):
            self._start(f"root/q.{part}")
        self._sample()

    @property
    def aggregator_names(self) -> list[str]:
        """One for each replica: fragments of two replicas run in different aggregators (R19)."""
        return [f"aggregator/{r}" for r in range(self.config.replicas)]

    @property
    def names(self) -> list[str]:
        """All processes, as status prints them."""
        return [
            *(f"proxy/{s}" for s in self.config.streams),
            *(
                self.orderer_name(c, r)
                for c in range(len(self.config.children))
                for r in range(self.config.replicas)
            ),
            *self.aggregator_names,
            *(f"root/q.{p}" for p in range(self.config.parts)),
        ]

    def _start(self, name: str) -> None:
        kind, _, rest = name.partition("/")
        before = self._present(name)
        if before is not None and before.speaks:
            self._outlive(before)
        process: SimProxy | SimOrderer | SimAggregator | SimRoot
        if kind == "proxy":
            process = self.proxies[rest] = SimProxy(self, rest)
        elif kind == "orderer":
            _, child, letter = rest.split(".")
            at = (int(child), ord(letter) - ord("a"))
            process = self.orderers[at] = SimOrderer(self, *at)
        elif kind == "aggregator":
            fragments = [(c, int(rest)) for c in range(len(self.config.children))]
            process = self.aggregators[name] = SimAggregator(self, name, fragments)
        else:
            process = self.roots[int(rest.split(".")[1])] = SimRoot(self, int(rest.split(".")[1]))
        self.note(name, "started")
        process.start()
        self._judge()

    def present(self, name: str) -> Process:
        """The incarnation that the supervisor knows."""
        process = self._present(name)
        assert process is not None, f"{name} has not been started"
        return process

    def _present(self, name: str) -> Process | None:
        kind, _, rest = name.partition("/")
        if kind == "proxy":
            return self.proxies.get(rest)
        if kind == "orderer":
            _, child, letter = rest.split(".")
            return self.orderers.get((int(child), ord(letter) - ord("a")))
        if kind == "aggregator":
            return self.aggregators.get(name)
        return self.roots.get(int(rest.split(".")[1]))

    def is_present(self, process: Process) -> bool:
        """Is it the incarnation that the supervisor knows?"""
        return self.present(process.name) is process

    def kill(self, name: str, *, stays_down: bool = False) -> None:
        """Kill -9; the supervisor starts it again soon, unless it shall stay down."""
        process = self.present(name)
        if process.alive:
            process.kill()
        if stays_down:
            self.held_down.add(name)
        else:
            self._restart_soon(process)
        self._judge()

    def _restart_soon(self, process: Process) -> None:
        delay = self.scheduler.between(*self.config.restart_us)

        def act() -> None:
            if process.name not in self.held_down and self.is_present(process):
                self._start(process.name)

        self.scheduler.after(delay, act)

    def restart(self, process: Process) -> None:
        """A process ended by itself and is started again."""
        if self.is_present(process):
            self.kill(process.name)
        else:
            process.kill()

    def bring_back(self, name: str) -> None:
        """Start a process that was held down."""
        self.held_down.discard(name)
        self._start(name)

    def pause(self, name: str, for_us: int, *, replaced: bool = False) -> None:
        """SIGSTOP, SIGCONT later; ``replaced``: another is started meanwhile (a zombie)."""
        process = self.present(name)
        if not process.alive or process.paused:
            return
        process.pause()
        self.scheduler.after(for_us, lambda: self._wake(process))
        if replaced:
            self._restart_soon(process)
        self._judge()

    def _wake(self, process: Process) -> None:
        if not self.is_present(process):
            self._outlive(process)
        process.wake()
        self._judge()

    def _outlive(self, zombie: Process) -> None:
        """A zombie works on until it sees its successor in the heartbeats."""

        def sees() -> None:
            if zombie.alive:
                zombie.kill()

        self.scheduler.after(self.scheduler.between(*self.config.zombie_us), sees)

    def next_placement(self) -> int:
        """The supervisor's counter."""
        self._placements += 1
        return self._placements

    # Faults of the surroundings.

    def silence(self, stream: str, for_us: int) -> None:
        """Cut the link between the stream's proxy and Kafka."""
        self.note(f"proxy/{stream}", f"silent for {for_us / second:g} s")
        until = self.scheduler.now + for_us
        self.spools[stream].silent_until = max(self.spools[stream].silent_until, until)
        self.scheduler.after(for_us, lambda: self.proxies[stream].turn_in(0))

    def broker_away(self, for_us: int) -> None:
        """Kill -9 the broker, and start it again later."""
        if not self.broker.up:
            return
        self.note("broker", "away")
        self.broker.go_away()
        self._judge()

        def back() -> None:
            self.note("broker", "back")
            self.broker.come_back()
            self._judge()

        self.scheduler.after(for_us, back)

    def double(self, replica: int, for_us: int) -> None:
        """A second aggregator for the replica's fragments, from the state records on."""
        name = f"aggregator/{replica}"
        fragments = [(c, replica) for c in range(len(self.config.children))]
        second_one = SimAggregator(self, name, fragments)
        self.note(name, "doubled")
        second_one.start()
        self.scheduler.after(for_us, second_one.kill)

    def deafen(self, orderer: str, stream: str, for_us: int) -> None:
        """The orderer's live consumer fetches this stream no more, for some time (R34)."""
        process = self.present(orderer)
        assert isinstance(process, SimOrderer)
        process.deaf_to.add(stream)
        self.note(orderer, f"deaf to {stream}")
        self._judge()

        def hears() -> None:
            process.deaf_to.discard(stream)
            process.turn_in(0)
            self._judge()

        self.scheduler.after(for_us, hears)

    def lose(self, name: str, lives_on_us: int) -> None:
        """A send fails for good: the process ends, but what it sent behind it is in the log."""
        process = self.present(name)
        if not process.speaks:
            return
        self.note(name, "loses a record")
        process.producer.lose_next = True
        self.scheduler.after(lives_on_us, lambda: self.restart(process) if process.alive else None)

    def damage(self, log_name: str) -> None:
        """The last record of a log turns into bytes that do not decode."""
        log = self.broker.log(log_name)
        if log.end > log.beginning:
            self.note("broker", f"{log_name} is damaged at {log.end - 1}")
            log.damage(log.end - 1)

    # Names and logs.

    def orderer_name(self, child: int, replica: int) -> str:
        """As status prints it."""
        return f"orderer/q.{child}.{chr(ord('a') + replica)}"

    def ordered_topic(self, child: int) -> str:
        """The topic's name, as in a hole's name."""
        return f"sw.ordered.q.{child}"

    def source_log(self, stream: str) -> Log[object]:
        """A stream's log."""
        return self.broker.log(f"sw.source.{stream}")

    def ordered_log(self, child: int, replica: int, line: int) -> Log[object]:
        """A replica's stable (0) or live (1) log."""
        return self.broker.log(f"{self.ordered_topic(child)}:{2 * replica + line}")

    def delta_log(self, part: int, child: int, replica: int, line: int) -> Log[object]:
        """What the aggregator makes of it for a part."""
        partition = (child * self.config.replicas + replica) * 2 + line
        return self.broker.log(f"sw.deltas.q.{part}:{partition}")

    def results_log(self, part: int) -> Log[object]:
        """The results of a part."""
        return self.broker.log(f"sw.results.q:{part}")

    @property
    def state_log(self) -> Log[object]:
        """The state records."""
        return self.broker.log("sw.state.q")

    # State records.

    def orderer_state(self, name: str) -> OrdererState | None:
        """The newest of an orderer."""
        values, _ = self.state_log.read_committed()
        for value in reversed(values):
            if isinstance(value, OrdererState) and value.fragment == name:
                return value
        return None

    def root_state(self, part: int) -> RootState | None:
        """The newest committed one of a part."""
        return newest_root_state(self.state_log.read_committed()[0], f"root/q.{part}")

    def root_states(self) -> list[RootState | None]:
        """Of all parts."""
        return [self.root_state(part) for part in range(self.config.parts)]

    # What the cores are told.

    def schedule(self, stage: int) -> Schedule:
        """Deadlines of a stage."""
        return Schedule(self.config.normal_time, self.config.answer_within_us(stage))

    def orderer_config(self, child: int, replica: int) -> OrdererConfig:
        """Of one replica."""
        streams = self.config.children[child]
        return OrdererConfig(
            fragment=self.orderer_name(child, replica),
            child=child,
            replica=replica,
            logs=streams,
            names=streams,
            grid=self.config.grid,
            schedule=self.schedule(1),
            ahead_buckets_max=self.config.ahead_buckets_max,
            ahead_bytes_max=self.config.ahead_bytes_max,
            backlog_records_max=self.config.backlog_records_max,
            disorder_us=self.config.disorder_us,
            policy=self.config.policy,
        )

    def root_config(self, part: int, placement: int) -> RootConfig:
        """Of one copy."""
        return RootConfig(
            fragment=f"root/q.{part}",
            query="q",
            part=part,
            placement=placement,
            children=self.config.children,
            replicas=self.config.replicas,
            fields=FIELDS,
            grid=self.config.grid,
            schedule=self.schedule(2),
            e0=self.config.e0_us,
            ahead_buckets_max=self.config.ahead_buckets_max,
            policy=self.config.policy,
        )

    # The history.

    def note(self, process: str, what: str) -> None:
        """Something happened."""
        self.history.notes.append(Note(self.scheduler.now, process, what))

    def committed(self, part: int, placement: int, commit: Commit, table: KeyTable) -> None:
        """A transaction counts from now on."""
        keys: dict[int, list[tuple[str, tuple[float, ...]]]] = {}
        for effect in commit.transaction.effects:
            content = getattr(effect, "content", None)
            seq = effect.seq
            if content is not None:
                names, figures = content.slice.sorted(table)
                columns = figures[:, 0, :].T.tolist()
                keys[seq] = [(k, tuple(c)) for k, c in zip(names, columns, strict=True)]
        self.history.committed.append(
            Committed(self.scheduler.now, part, placement, commit.transaction, keys)
        )

    def _judge(self) -> None:
        """Keep the record of the times at which some stage has no copy that works."""
        now = self.scheduler.now
        bad = not self._is_available()
        if bad and "all" not in self._down:
            self._down["all"] = now
        elif not bad and "all" in self._down:
            self.history.unavailable.append((self._down.pop("all"), now))

    def _is_available(self) -> bool:
        if not self.broker.up:
            return False
        if not all(self.roots[p].speaks for p in self.roots) or len(self.roots) < self.config.parts:
            return False
        return all(
            any(self._replica_works(c, r) for r in range(self.config.replicas))
            for c in range(len(self.config.children))
        )

    def _replica_works(self, child: int, replica: int) -> bool:
        orderer = self.orderers.get((child, replica))
        aggregator = self.aggregators.get(f"aggregator/{replica}")
        return (
            orderer is not None
            and aggregator is not None
            and orderer.speaks
            and aggregator.speaks
            and not orderer.deaf_to
        )

    def _sample(self) -> None:
        held = {}
        for at, orderer in self.orderers.items():
            if orderer.core is not None and orderer.alive:
                held[self.orderer_name(*at)] = orderer.core.held_bytes
        for part, root in self.roots.items():
            if root.core is not None and root.alive:
                held[f"root/q.{part}"] = root.core.held_slices
        self.history.samples.append(Sample(self.scheduler.now, held))
        self.scheduler.after(second, self._sample)

    # Running.

    def run(self, for_us: int) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now + for_us)

    def heal(self) -> None:
        """End every fault."""
        for name in sorted(self.held_down):
            self.bring_back(name)
        for stream in self.config.streams:
            self.spools[stream].silent_until = -1
            self.proxies[stream].turn_in(0)
        for orderer in self.orderers.values():
            orderer.deaf_to.clear()
            orderer.turn_in(0)

    def finish(self) -> History:
        """The history, with the source logs as they stand."""
        self._judge()
        history = self.history
        if "all" in self._down:
            history.unavailable.append((self._down["all"], self.scheduler.now))
        history.ended_at = self.scheduler.now
        for stream in self.config.streams:
            history.source_logs[stream] = [
                (offset, value)
                for offset, value in self.source_log(stream).values()
                if isinstance(value, SourceRecord)
            ]
        return history


def spread(items: Sequence[str], children: int) -> tuple[tuple[str, ...], ...]:
    """Streams over children, neighbours together."""
    base, longer = divmod(len(items), children)
    found, at = [], 0
    for child in range(children):
        size = base + (child < longer)
        found.append(tuple(items[at : at + size]))
        at += size
    return tuple(found)
