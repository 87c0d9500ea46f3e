"""The whole system in virtual time: sensors to results, under one seed.

A ``World`` wires the product's own cores with the models of Kafka, the sensors and the aggregator,
supervises the processes as the real supervisor does, and keeps the *history*: what was committed,
when, and which faults there were. Checkers see the history and the source logs, nothing else.
"""

from __future__ import annotations

from tests.simulator.aggregator import SimAggregator
from tests.simulator.clock import Scheduler, second
from tests.simulator.config import E0_US, WorldConfig, spread
from tests.simulator.heartbeats import Heartbeats
from tests.simulator.history import Committed, History, Note, Outage, Rows, Sample
from tests.simulator.kafka import Broker, Log
from tests.simulator.orderers import SimOrderer
from tests.simulator.places import PlaceWords
from tests.simulator.process import Process
from tests.simulator.readings import Sensor
from tests.simulator.roots import SimRoot, newest_root_state
from tests.simulator.sources import FIELDS, SimProxy, Spool
from tests.simulator.turns import TurnWords

from slackwater.model.records import OrderedRecord, OrdererState, RootState, SourceRecord
from slackwater.primitives.deltas import KeyTable
from slackwater.protocols.dpc.line import Schedule
from slackwater.protocols.dpc.orderer import OrdererConfig
from slackwater.protocols.dpc.root import Commit, RootConfig, answered_by_all
from slackwater.protocols.dpc.staggering import lease_us_default
from slackwater.runtime.truncation import not_needed

__all__ = ["E0_US", "History", "World", "WorldConfig", "spread"]

_LATE = "sends of "


class World:
    """A deployment with one query."""

    def __init__(self, seed: int, config: WorldConfig | None = None) -> None:
        self.seed = seed
        self.config = config or WorldConfig()
        self.scheduler = Scheduler(seed, self.config.e0_us)
        self.broker = Broker(self.scheduler)
        self.heartbeats = Heartbeats(self)
        self.turns = TurnWords(self)
        self.places = PlaceWords(self)
        self.history = History(self.config)
        self.skew_us = dict(self.config.skew_us)
        """By process, how far its machine's clock is ahead now."""
        self.spools = {s: Spool() for s in self.config.streams}
        self.sensors = {
            s: Sensor(s, seed, self.config.habits_of(s), self.config.e0_us)
            for s in self.config.streams
        }
        self.proxies: dict[str, SimProxy] = {}
        self.orderers: dict[tuple[int, int], SimOrderer] = {}
        self.aggregators: dict[str, SimAggregator] = {}
        self.roots: dict[int, SimRoot] = {}
        self.held_down: set[str] = set()
        """Names of processes that the supervisor does not start again."""
        self._placements = 0
        self._down: dict[str, int] = {}
        self._hurt: dict[str, Outage] = {}
        self._given_up: dict[str, int] = {}

    # Supervision.

    def start(self) -> None:
        """Start everything."""
        for stream in self.config.streams:
            self._start(f"proxy/{stream}")
        for child in range(len(self.config.children)):
            for replica in range(self.config.replicas):
                self._start(self.orderer_name(child, replica))
        for name in self.config.aggregator_names:
            self._start(name)
        for part in range(self.config.parts):
            self._start(f"root/q.{part}")
        self._sample()

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
        if abs(self.skew_us.get(name, 0)) > self.config.margin_us // 2:
            self.history.clocks_agree = False
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
        self.hurt(name, "down")
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
        self.hurt(name, "down")
        process.pause()
        self.scheduler.after(for_us, lambda: self._wake(process))
        if replaced:
            self._restart_soon(process)
        self._judge()

    def _wake(self, process: Process) -> None:
        if not self.is_present(process):
            self._outlive(process)
        process.wake()
        self.works(process)
        self._judge()

    def _outlive(self, zombie: Process) -> None:
        """A zombie works on until it sees its successor in the heartbeats."""

        def sees() -> None:
            if zombie.alive:
                zombie.kill()

        self.scheduler.after(self.scheduler.between(*self.config.zombie_us), sees)

    def hurt(self, whom: str, what: str) -> None:
        """An outage begins, unless there is one already."""
        self._hurt.setdefault(whom, Outage(self.scheduler.now, -1, f"{whom} {what}"))

    def over(self, whom: str) -> None:
        """It ends."""
        outage = self._hurt.pop(whom, None)
        if outage is not None:
            self.history.outages.append(outage._replace(end=self.scheduler.now))

    def _jolt(self, what: str) -> None:
        """Something is gone at once, and may have to be said again by a writer that starts anew."""
        now = self.scheduler.now
        self.history.outages.append(Outage(now, now + self.config.bound_us, what))

    def works(self, process: Process) -> None:
        """The process does its work, as far as it knows."""
        if self.is_present(process) and process.speaks:
            self.over(process.name)

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
        self.hurt(f"link of {stream}", "cut")

        def back() -> None:
            if self.spools[stream].silent_until <= self.scheduler.now:
                self.over(f"link of {stream}")
                self.proxies[stream].turn_in(0)

        self.scheduler.after(for_us, back)

    def fill_disk(self, stream: str, for_us: int) -> None:
        """The spool of a stream's proxy can keep nothing more: sensors are pushed back."""
        self.note(f"proxy/{stream}", f"has no room on its disk for {for_us / second:g} s")
        spool = self.spools[stream]
        spool.full_until = max(spool.full_until, self.scheduler.now + for_us)
        self.hurt(f"disk of {stream}", "full")

        def room() -> None:
            if spool.full_until <= self.scheduler.now:
                self.over(f"disk of {stream}")
                self.proxies[stream].turn_in(0)

        self.scheduler.after(for_us, room)

    def slow_down(self, name: str, for_us: int, by_us: int) -> None:
        """What the process sends arrives later than usual, in its order."""
        process = self.present(name)
        self.note(name, f"sends {by_us / second:g} s late for {for_us / second:g} s")
        self.hurt(_LATE + name, "late")
        process.producer.late_us = by_us

        def fast() -> None:
            process.producer.late_us = 0
            self.scheduler.after(by_us, lambda: self.over(_LATE + name))

        self.scheduler.after(for_us, fast)

    def step_clock(self, name: str, by_us: int) -> None:
        """The clock of a process's machine jumps; a running process only leans towards it."""
        self.note(name, f"clock steps by {by_us / second:g} s")
        self.skew_us[name] = self.skew_us.get(name, 0) + by_us
        process = self._present(name)
        if process is not None:
            process.clock_stepped()

    def cut(self, log_name: str, keep: int) -> None:
        """Retention: only the last ``keep`` records are left, whoever still needs the others."""
        log = self.broker.log(log_name)
        if log.end - keep > log.beginning:
            self._jolt(f"{log_name} cut")
            log.cut(log.end - keep)
            self.note("broker", f"{log_name} now begins at {log.beginning}")
            kind, _, stream = log_name.rpartition(".")
            if kind == "sw.source":
                self.history.cut.setdefault(stream, []).append(log.beginning)

    def truncate(self) -> None:
        """What the supervisor does once a minute (D15): gives up what nobody needs now."""
        states: dict[str, OrdererState | RootState] = {}
        for part, root in enumerate(self.root_states()):
            if root is not None:
                states[f"root/q.{part}"] = root
        for name in self.config.orderer_names:
            orderer = self.orderer_state(name)
            if orderer is not None:
                states[name] = orderer
        needed = {
            f"{topic}:{partition}": offset
            for (topic, partition), offset in not_needed(self.config.query, states).items()
        }
        for name, offset in needed.items():
            self.broker.log(name).cut(min(offset, self._given_up.get(name, 0)))
        self._given_up = needed

    def broker_away(self, for_us: int) -> None:
        """Kill -9 the broker, and start it again later."""
        if not self.broker.up:
            return
        self.note("broker", "away")
        self.hurt("broker", "away")
        self.broker.go_away()
        self._judge()

        def back() -> None:
            self.note("broker", "back")
            self.over("broker")
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
        self.hurt(f"{orderer} to {stream}", "deaf")
        self._judge()

        def hears() -> None:
            self.over(f"{orderer} to {stream}")
            process.deaf_to.discard(stream)
            process.turn_in(0)
            self._judge()

        self.scheduler.after(for_us, hears)

    def deafen_root(self, root: str, child: int, replica: int, for_us: int) -> None:
        """The root's live consumer fetches one replica's deltas no more, for some time."""
        process = self.present(root)
        assert isinstance(process, SimRoot)
        process.deaf_to.add((child, replica))
        self.note(root, f"deaf to {child}.{replica}")
        self.hurt(f"{root} to {child}.{replica}", "deaf")
        self._judge()

        def hears() -> None:
            self.over(f"{root} to {child}.{replica}")
            process.deaf_to.discard((child, replica))
            process.turn_in(0)
            self._judge()

        self.scheduler.after(for_us, hears)

    def lose(self, name: str, lives_on_us: int) -> None:
        """A send fails for good: the process ends, but what it sent behind it is in the log."""
        process = self.present(name)
        if not process.speaks:
            return
        self.note(name, "loses a record")
        self.hurt(name, "down")
        self._jolt(f"{name} lost a record")
        process.producer.lose_next = True
        self.scheduler.after(lives_on_us, lambda: self.restart(process) if process.alive else None)

    def damage(self, log_name: str) -> None:
        """The last record of a log turns into bytes that do not decode."""
        log = self.broker.log(log_name)
        if log.end > log.beginning:
            self.note("broker", f"{log_name} is damaged at {log.end - 1}")
            self._jolt(f"{log_name} damaged")
            log.damage(log.end - 1)
            self.history.damaged += 1

    # Names and logs.

    def orderer_name(self, child: int, replica: int) -> str:
        """As status prints it."""
        return self.config.orderer_name(child, replica)

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

    def peer_states(self, child: int) -> list[OrdererState]:
        """The newest of each replica of a child."""
        names = [self.orderer_name(child, replica) for replica in range(self.config.replicas)]
        return [state for name in names if (state := self.orderer_state(name)) is not None]

    @property
    def answered_to(self) -> int | None:
        """S of the part that is last."""
        return answered_by_all(self.root_states())

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
            disorder_us=max(map(self.config.disorder_of, streams)),
            lateness_us=self.config.lateness_us,
            in_time_us=self.config.answer_within_us(1),
            replicas=self.config.replicas,
            turn_lease_us=self.config.paced(lease_us_default),
            policy=self.config.policy,
            seek_period_us=self.config.seek_period_us,
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
        keys: dict[int, Rows] = {}
        for effect in commit.transaction.effects:
            content = getattr(effect, "content", None)
            seq = effect.seq
            if content is not None:
                names, figures = content.slice.sorted(table)
                columns = figures[:, 0, :].T.tolist()
                keys[seq] = [(k, tuple(c)) for k, c in zip(names, columns, strict=True)]
        self.history.committed.append(
            Committed(self.scheduler.now, part, placement, commit.transaction, keys, commit.state)
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
        roots = self.roots.values()
        if len(roots) < self.config.parts or not all(r.speaks and not r.deaf_to for r in roots):
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
        self.scheduler.after(self.config.paced(second), self._sample)

    # Running.

    def run(self, for_us: int) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now + for_us)

    def heal(self) -> None:
        """End every fault."""
        for name in sorted(self.held_down):
            self.bring_back(name)
        for stream in self.config.streams:
            self.spools[stream].silent_until = self.spools[stream].full_until = -1
            self.proxies[stream].turn_in(0)
        for name in self.config.names:
            self.present(name).producer.late_us = 0
            if abs(self.skew_us.get(name, 0)) > self.config.margin_us // 2:
                self.skew_us[name] = 0
                self.kill(name)  # takes the right time over
        for whom in list(self._hurt):
            # What is sent late is on its way yet, and ends by itself.
            late = whom.startswith(_LATE)
            if not late and whom not in self.config.names and whom != "broker":
                self.over(whom)
        for orderer in self.orderers.values():
            orderer.deaf_to.clear()
            orderer.turn_in(0)
        for root in self.roots.values():
            root.deaf_to.clear()
            root.turn_in(0)

    def finish(self) -> History:
        """The history, with the source logs as they stand."""
        self._judge()
        history = self.history
        if "all" in self._down:
            history.unavailable.append((self._down["all"], self.scheduler.now))
        for whom in list(self._hurt):
            self.over(whom)
        history.ended_at = self.scheduler.now
        for stream in self.config.streams:
            history.source_logs[stream] = [
                (offset, value)
                for offset, value in self.source_log(stream).all_values()
                if isinstance(value, SourceRecord)
            ]
        for child in range(len(self.config.children)):
            for replica in range(self.config.replicas):
                for line in (0, 1):
                    history.ordered_logs[child, replica, line] = [
                        (offset, value)
                        for offset, value in self.ordered_log(child, replica, line).all_values()
                        if isinstance(value, OrderedRecord)
                    ]
        return history
