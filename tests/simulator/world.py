"""The whole system in virtual time: sensors to results, with one seed.

A ``World`` connects the product's cores with the models of Kafka, the sensors and the aggregator,
supervises the processes like the real supervisor, and records the *history*: commits with their
times, and faults. Checkers have access to the history and the source logs only.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.simulator.aggregator import SimAggregator
from tests.simulator.clock import SECOND, Scheduler
from tests.simulator.config import START_TIME_US, Chain, WorldConfig, spread
from tests.simulator.heartbeats import Heartbeats
from tests.simulator.history import History, Learned, Note, OfQuery, Outage, Sample
from tests.simulator.kafka import Broker, Log
from tests.simulator.mergers import SimMerger
from tests.simulator.orderers import SimOrderer
from tests.simulator.process import Process
from tests.simulator.queries import SimQuery
from tests.simulator.readings import Sensor
from tests.simulator.roots import SimRoot
from tests.simulator.site_logs import not_needed_with_sites
from tests.simulator.sources import SimProxy, Spool
from tests.simulator.topic_proxies import SimTopicProxy
from tests.simulator.topics import InputTopic
from tests.simulator.uplinks import CENTRE, SimUplink

from slackwater.model.names import (
    OrdererName,
    ProxyName,
    RootName,
    earlier_generations,
    generation_of,
)
from slackwater.model.records import SourceRecord
from slackwater.node.hand_over import HAND_OVER_S_MAX
from slackwater.primitives.lateness import Step
from slackwater.primitives.windows import Grid
from slackwater.protocols.dpc.soutput.config import start_of_generation
from slackwater.registration.replacing import ROOTS_S_MAX
from slackwater.registration.truncation import not_needed

if TYPE_CHECKING:
    from tests.simulator.faults import Fault

__all__ = ["START_TIME_US", "Chain", "History", "World", "WorldConfig", "spread"]

_OF_Q: Final = re.compile(
    r"(orderer/q|merger/q|root/q|sw\.ordered\.q|sw\.deltas\.q|sw\.merged\.q)\.(?!g\d)"
)
_LATE = "sends of "
LINK = "link to the centre"
FOR_EVER_US = 1 << 60
_OVERLOAD = "machine of "
FOLLOW_US = 200_000
"""Time after which a recorded step has been read by all processes, scaled by ``pace``."""


class World:
    """A deployment with one or two queries."""

    def __init__(self, seed: int, config: WorldConfig | None = None) -> None:
        self.seed = seed
        self.config = config or WorldConfig()
        self.scheduler = Scheduler(seed, self.config.start_time_us)
        self.broker = Broker(self.scheduler)
        self.heartbeats = Heartbeats(self)
        self.history = History(self.config)
        self.skew_us = dict(self.config.skew_us)
        """By process: present lead of its machine's clock."""
        self.history.fastest_us = max([0, *self.skew_us.values()])
        streams = self.config.all_streams
        self.spools = {s: Spool() for s in streams}
        self.sensors = {
            s: Sensor(s, seed, self.config.habits_of(s), self.config.start_time_us) for s in streams
        }
        self.topics = {
            s: InputTopic(s, seed, partitions, self.broker, self.sensors[s])
            for s, partitions in self.config.topics.items()
        }
        """By stream that reads a topic; its name is that of the stream."""
        self.partitions: dict[str, int] = {}
        """The registry: the number of source logs of each stream that reads a topic (rule-30)."""
        self._hints: dict[str, dict[str, Any]] = {}
        self._moves = Random(f"moves/{seed}")
        self.proxies: dict[str, SimProxy | SimTopicProxy] = {}
        self.aggregators: dict[str, SimAggregator] = {}
        self.q = SimQuery(self, self.config, self.history)
        self.queries = {self.q.name: self.q}
        """By name: q, and the reader of its results or children."""
        if self.config.reader is not None:
            self.history.reader = OfQuery(self.config.reader)
            reader = SimQuery(self, self.config.reader, self.history.reader)
            self.queries[reader.name] = reader
        self._replaced: set[str] = set()
        """Names of queries whose next generation answers."""
        self._ended: set[str] = set()
        """Names of generations that have ended in the registry."""
        self._learned: dict[str, list[Step]] = {}
        """By stream: recorded steps that the processes have read."""
        self.retired: set[str] = set()
        """Names of processes of a generation that has been replaced."""
        self.held_down: set[str] = set()
        """Names of processes that the supervisor does not restart."""
        self._placements = 0
        self.overloaded_us: dict[str, int] = {}
        self._delayed_until: dict[str, int] = {}
        """By process: additional time of a unit of its work."""
        self._outages_now: dict[str, Outage] = {}
        self._given_up: dict[str, int] = {}
        self.link_cut_until = 0
        """Until when no site reaches the centre."""

    # Supervision.

    def start(self) -> None:
        """Start all processes."""
        sharing, later = self.config.sharing, set[str]()
        if sharing is not None and sharing.joins_us:
            joining = self.queries["r"].config
            later = {*joining.merger_names, *joining.root_names}
            self.queries["r"].is_registered = False
            self.scheduler.after(sharing.joins_us, self._join)
        for name in self.config.names:
            if name not in later:
                self._start(name)
        self._sample()

    def _join(self) -> None:
        """Apply r: it reads q's children as they are (trace-50)."""
        r = self.queries["r"]
        r.is_registered = True
        self.note("r", "joins q's children")
        for name in [*r.config.merger_names, *r.config.root_names]:
            self._start(name)

    def _start(self, name: str) -> None:
        kind, _, rest = name.partition("/")
        before = self._present(name)
        if before is not None and before.speaks:
            self._outlive(before)
        process: (
            SimProxy | SimTopicProxy | SimOrderer | SimAggregator | SimMerger | SimUplink | SimRoot
        )
        if kind == "proxy":
            of = ProxyName.parse(rest)
            is_of_topic = of.stream in self.topics
            if self._moves.randrange(3) == 0:
                self._hints.pop(rest, None)  # it starts on another machine
            process = SimTopicProxy(self, of) if is_of_topic else SimProxy(self, of.stream)
            self.proxies[rest] = process
        elif kind == "orderer":
            query, at = self._fragment(rest)
            process = query.orderers[at] = SimOrderer(query, *at)
        elif kind == "aggregator":
            process = self.aggregators[name] = self._aggregator(int(rest))
        elif kind == "uplink":
            query, at = self._fragment(rest)
            process = query.uplinks[at] = SimUplink(query, *at)
        elif kind == "merger":
            query, at = self._fragment(rest)
            process = query.mergers[at] = SimMerger(query, *at)
        else:
            query, root = self._part(rest)
            process = SimRoot(query, root.part, copy=root.copy)
            query.roots[root.part, root.copy] = process
        self.note(name, "started")
        if abs(self.skew_us.get(name, 0)) > self.config.margin_us // 2:
            self.history.clocks_agree = False
        process.start()
        self._judge()

    def _fragment(self, name: str) -> tuple[SimQuery, tuple[int, int]]:
        of = OrdererName.parse(name)
        return self.queries[of.query], (of.child, of.replica)

    def _part(self, name: str) -> tuple[SimQuery, RootName]:
        of = RootName.parse(name)
        return self.queries[of.query], of

    def _aggregator(self, replica: int) -> SimAggregator:
        """Start an aggregator with this replica of every child of every query."""
        fragments = [
            (query, child, replica)
            for query in self.queries.values()
            for child in range(len(query.config.children))
            if query.has_children and query.name not in self._replaced
            if replica < query.config.replicas and not query.config.rows
        ]
        return SimAggregator(self, f"aggregator/{replica}", fragments)

    def present(self, name: str) -> Process:
        """Return the incarnation that the supervisor started last."""
        process = self._present(name)
        assert process is not None, f"{name} has not been started"
        return process

    def _present(self, name: str) -> Process | None:
        kind, _, rest = name.partition("/")
        if kind == "proxy":
            return self.proxies.get(rest)
        if kind == "aggregator":
            return self.aggregators.get(name)
        if kind == "orderer":
            query, at = self._fragment(rest)
            return query.orderers.get(at)
        if kind == "merger":
            query, at = self._fragment(rest)
            return query.mergers.get(at)
        if kind == "uplink":
            query, at = self._fragment(rest)
            return query.uplinks.get(at)
        query, of = self._part(rest)
        return query.roots.get((of.part, of.copy))

    def is_present(self, process: Process) -> bool:
        """Return whether it is the incarnation that the supervisor started last."""
        return self.present(process.name) is process

    def kill(self, name: str, *, stays_down: bool = False) -> None:
        """Kill -9; the supervisor soon restarts the process, unless it must stay down."""
        if name in self.retired:
            self.present(name).kill()
            return
        self.begin_outage(name, "down")
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
            is_needed = process.name not in self.held_down | self.retired
            if is_needed and self.is_present(process):
                self._start(process.name)

        self.scheduler.after(delay, act)

    def restart(self, process: Process) -> None:
        """Restart a process that ended by itself."""
        if self.is_present(process):
            self.kill(process.name)
        else:
            process.kill()

    def rebuild(self, process: Process) -> None:
        """Build a session again in its host, at once and without a pause (rule-30)."""
        process.kill()
        if self.is_present(process):
            self.begin_outage(process.name, "built again")
            self._start(process.name)

    def stop(self, name: str) -> None:
        """SIGTERM; the supervisor soon restarts the process, as after a move."""
        process = self.present(name)
        if isinstance(process, SimRoot) and process.alive and not process.paused:
            process.stop()
        else:
            self.kill(name)

    def report_dead(self, name: str) -> None:
        """Report the end of a process, as its supervisor does; of a root's copy also falsely."""
        process = self.present(name)
        if isinstance(process, SimRoot):
            process.report_dead()
        elif not process.alive:
            self.heartbeats.report_dead(name)

    def bring_back(self, name: str) -> None:
        """Start a process that was kept down."""
        self.held_down.discard(name)
        self._start(name)

    def pause(self, name: str, for_us: int, *, replaced: bool = False) -> None:
        """SIGSTOP, SIGCONT later; ``replaced``: another is started meanwhile (a zombie)."""
        process = self.present(name)
        if not process.alive or process.paused:
            return
        self.begin_outage(name, "down")
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
        """Let a zombie continue until it receives its successor's heartbeat."""

        def sees() -> None:
            if zombie.alive:
                zombie.kill()

        self.scheduler.after(self.scheduler.between(*self.config.zombie_us), sees)

    @property
    def is_link_cut(self) -> bool:
        """Whether no site reaches the centre."""
        return self.scheduler.now < self.link_cut_until

    def cut_link(self, for_us: int = FOR_EVER_US) -> None:
        """Cut the link between the sites and the centre; by default until ``heal_link``."""
        self.note("link", "cut")
        self.link_cut_until = max(self.link_cut_until, self.scheduler.now + for_us)
        self.begin_outage(LINK, "cut")

        def back() -> None:
            if self.link_cut_until <= self.scheduler.now:
                self.heal_link()

        if for_us < FOR_EVER_US:
            self.scheduler.after(for_us, back)

    def heal_link(self) -> None:
        """End this."""
        self.note("link", "heals")
        self.link_cut_until = self.scheduler.now
        self.over(LINK)
        for query in self.queries.values():
            for uplink in query.uplinks.values():
                uplink.link_heals()

    def begin_outage(self, whom: str, what: str) -> None:
        """Begin an outage, unless one has begun already.

        What befalls a merger is none, except at a site: the centre has nothing else.
        """
        is_merger = whom.removeprefix(_LATE).removeprefix(_OVERLOAD).startswith("merger/")
        if is_merger and not self.config.sites:
            return
        self._outages_now.setdefault(whom, Outage(self.scheduler.now, -1, f"{whom} {what}"))

    def over(self, whom: str) -> None:
        """End an outage."""
        outage = self._outages_now.pop(whom, None)
        if outage is not None:
            self.history.outages.append(outage._replace(end=self.scheduler.now))

    def _jolt(self, what: str) -> None:
        """Record an instantaneous loss, which may require a writer to restart and send again."""
        now = self.scheduler.now
        self.history.outages.append(Outage(now, now + self.config.bound_us, what))

    def served(self, proxy: SimTopicProxy) -> None:
        """A proxy has taken over the logs of its stream, and reads the topic as it is now."""
        self.works(proxy)
        of_stream = [self.proxies.get(str(n)) for n in self.config.proxy_names(proxy.stream)]
        if all(isinstance(each, SimTopicProxy) and each.is_up_to_date for each in of_stream):
            self.over(f"topic of {proxy.stream}")

    def works(self, process: Process) -> None:
        """Return whether the process is working, as far as it can determine."""
        if self.is_present(process) and process.speaks:
            self.over(process.name)

    def stays_down(self, process: Process) -> None:
        """The process has ended, since a greater placement was there."""

    def aggregates(self, orderer: SimOrderer) -> bool:
        """Return whether the aggregator of an orderer's log works."""
        aggregator = self.aggregators.get(f"aggregator/{orderer.replica}")
        return aggregator is not None and aggregator.speaks

    def next_placement(self) -> int:
        """Return the next placement number of the supervisor."""
        self._placements += 1
        return self._placements

    # Faults of the environment.

    def silence(self, stream: str, for_us: int) -> None:
        """Cut the link between the stream's proxy and Kafka."""
        self.note(f"proxy/{stream}", f"silent for {for_us / SECOND:g} s")
        until = self.scheduler.now + for_us
        self.spools[stream].silent_until = max(self.spools[stream].silent_until, until)
        self.begin_outage(f"link of {stream}", "cut")

        def back() -> None:
            if self.spools[stream].silent_until <= self.scheduler.now:
                self.over(f"link of {stream}")
                self._wake_proxies(stream)

        self.scheduler.after(for_us, back)

    def _wake_proxies(self, stream: str) -> None:
        for name in self.config.proxy_names(stream):
            self.proxies[str(name)].turn_in(0)

    def set_device(self, stream: str, for_us: int, by_us: int) -> None:
        """Set the clock of one device of a stream ahead or behind, for a while.

        An outage: without the device's readings the others may be too rare for ``expect_every``.
        """
        self.note(f"proxy/{stream}", f"a device's clock is {by_us / SECOND:g} s ahead")
        whom, now = f"device of {stream}", self.scheduler.now
        self.sensors[stream].wrong.append((now, now + for_us, by_us))
        self.begin_outage(whom, "with a wrong clock")
        self.scheduler.after(for_us, lambda: self.over(whom))

    def remake_topic(self, stream: str, for_us: int, partitions: int) -> None:
        """Delete the topic of a stream, and make it again later, with another id."""
        topic = self.topics[stream]
        if topic.is_away:
            return
        self.note(f"proxy/{stream}", f"the topic is away for {for_us / SECOND:g} s")
        self._change_topic(stream)
        topic.delete()

        def make() -> None:
            if topic.is_away:
                topic.make(max(self.config.shares.get(stream, 1), partitions))
                self.note(
                    f"proxy/{stream}", f"the topic is made again with {partitions} partitions"
                )

        self.scheduler.after(for_us, make)

    def grow_topic(self, stream: str, more: int) -> None:
        """Add partitions to the topic of a stream."""
        self.note(f"proxy/{stream}", f"the topic gets {more} partitions")
        self._change_topic(stream)
        self.topics[stream].grow(more)

    def expire_topic(self, stream: str, keep: int) -> None:
        """Let retention delete all but the last messages of the topic of a stream."""
        self.note(f"proxy/{stream}", f"the topic keeps {keep} messages a partition")
        self._jolt(f"topic of {stream} cut")
        self.topics[stream].expire(keep)

    def truncate_topic(self, stream: str, for_us: int, count: int) -> None:
        """Lose the last messages of a stream's topic, by an unclean election."""
        self.note(f"proxy/{stream}", f"the topic loses the last {count} messages of partitions")
        self._jolt(f"topic of {stream} truncated")
        self.topics[stream].truncate(count, self.scheduler.now + for_us)
        whom = f"leader of {stream}"
        self.begin_outage(whom, "away")
        self.scheduler.after(for_us, lambda: self.over(whom))

    def _change_topic(self, stream: str) -> None:
        self.begin_outage(f"topic of {stream}", "changed")

    def fill_disk(self, stream: str, for_us: int) -> None:
        """Fill the spool of a stream's proxy: sensors get push-back."""
        self.note(f"proxy/{stream}", f"has no room on its disk for {for_us / SECOND:g} s")
        spool = self.spools[stream]
        spool.full_until = max(spool.full_until, self.scheduler.now + for_us)
        self.begin_outage(f"disk of {stream}", "full")

        def room() -> None:
            if spool.full_until <= self.scheduler.now:
                self.over(f"disk of {stream}")
                self._wake_proxies(stream)

        self.scheduler.after(for_us, room)

    def slow_down(self, name: str, for_us: int, by_us: int) -> None:
        """Delay the process's records, in order; a second delay may begin before the first ends."""
        process = self.present(name)
        over_at = self.scheduler.now + for_us + by_us
        self._delayed_until[name] = max(over_at, self._delayed_until.get(name, 0))
        self.note(name, f"sends {by_us / SECOND:g} s late for {for_us / SECOND:g} s")
        self.begin_outage(_LATE + name, "late")
        process.producer.late_us = by_us

        def fast() -> None:
            process.producer.late_us = 0
            self.scheduler.after(by_us, arrived)

        def arrived() -> None:
            if self._delayed_until[name] <= self.scheduler.now:
                self.over(_LATE + name)

        self.scheduler.after(for_us, fast)

    def overload(self, name: str, for_us: int, by_us: int) -> None:
        """Slow a process down, so that a unit of work takes ``by_us`` longer.

        A unit is a window that a root computes, a bucket that an orderer emits, or ten records that
        it reads.
        """
        self.note(name, f"overloaded for {for_us / SECOND:g} s, {by_us / SECOND:g} s a unit")
        self.begin_outage(_OVERLOAD + name, "overloaded")
        self.overloaded_us[name] = by_us
        self._judge()
        self.scheduler.after(for_us, lambda: self._relieve(name))

    def _relieve(self, name: str) -> None:
        if self.overloaded_us.pop(name, 0):
            self.note(name, "no longer overloaded")
            self.over(_OVERLOAD + name)
            self.present(name).relieved()
            self._judge()

    def step_clock(self, name: str, by_us: int) -> None:
        """Step the clock of a process's machine; a running process only slews towards it."""
        self.note(name, f"clock steps by {by_us / SECOND:g} s")
        self.skew_us[name] = self.skew_us.get(name, 0) + by_us
        self.history.fastest_us = max(self.history.fastest_us, self.skew_us[name])
        process = self._present(name)
        if process is not None:
            process.clock_stepped()

    def cut(self, log_name: str, keep: int) -> None:
        """Delete all but the last ``keep`` records, needed or not, as retention does."""
        log_name = self._first_log(log_name)
        log = self.broker.log(log_name)
        if log.end - keep > log.beginning:
            if not log_name.startswith("sw.merged."):
                self._jolt(f"{log_name} cut")
            log.cut(log.end - keep)
            self.note("broker", f"{log_name} now begins at {log.beginning}")
            self._note_loss(log_name, log.beginning)

    def _note_loss(self, log_name: str, before: int) -> None:
        """Note that a source log or the results of a query have lost records before an offset."""
        _, kind, whose = log_name.split(".", 2)
        if kind == "results":
            whose = whose.split(".")[0]
        if kind in ("source", "results"):
            self.history.cut.setdefault(whose, []).append(before)

    def _first_log(self, name: str) -> str:
        """Return a log's name; the first one of a stream that reads a topic."""
        return f"{name}.0" if name.removeprefix("sw.source.") in self.topics else name

    def truncate(self) -> None:
        """Truncate logs as the supervisor does once a minute (dpc-15).

        Delete what no reader needs.
        """
        needed = {
            f"{topic}:{partition}": offset
            for of in self.queries.values()
            if of.has_children
            for (topic, partition), offset in self._not_needed(of).items()
        }
        for name, offset in needed.items():
            self.broker.log(name).cut(min(offset, self._given_up.get(name, 0)))
        self._given_up = needed

    @staticmethod
    def _not_needed(of: SimQuery) -> dict[tuple[str, int], int]:
        readers = of.readers  # without itself if it has been deleted
        states = {name: each for query in [*readers, of] for name, each in query.states().items()}
        found = not_needed([query.config.query for query in readers], states)
        return not_needed_with_sites(of, found) if of.config.sites else found

    def cut_off(self, name: str, for_us: int) -> None:
        """Cut a process off from the broker, which the others reach."""
        process = self.present(name)
        if not process.alive or process.producer.cut_off:
            return
        self.note(name, "cut off")
        self.begin_outage(f"{name} from the broker", "cut off")
        process.cut_off(True)
        self._judge()

        def back() -> None:
            self.over(f"{name} from the broker")
            process.cut_off(False)
            self._judge()

        self.scheduler.after(for_us, back)

    def judge(self) -> None:
        """Look again which stages have a working copy."""
        self._judge()

    def broker_away(self, for_us: int) -> None:
        """Kill -9 the broker, and start it again later."""
        if not self.broker.up:
            return
        self.note("broker", "away")
        self.begin_outage("broker", "away")
        self.broker.go_away()
        self._judge()

        def back() -> None:
            self.note("broker", "back")
            self.over("broker")
            self.broker.come_back()
            self._judge()

        self.scheduler.after(for_us, back)

    def double(self, replica: int, for_us: int) -> None:
        """Start a second aggregator for the replica's fragments, from the state records."""
        second_one = self._aggregator(replica)
        self.note(second_one.name, "doubled")
        second_one.start()
        self.scheduler.after(for_us, second_one.kill)

    def on_machines(self, fault: Fault) -> None:
        """Inject a fault of machines."""
        raise AssertionError(f"{fault}: this run has no machines")

    def deafen(self, orderer: str, stream: str, for_us: int) -> None:
        """Stop the orderer's live consumer from fetching a stream for some time (trace-34)."""
        process = self.present(orderer)
        assert isinstance(process, SimOrderer)
        process.deaf_to.add(stream)
        self.note(orderer, f"deaf to {stream}")
        self.begin_outage(f"{orderer} to {stream}", "deaf")
        self._judge()

        def receives() -> None:
            self.over(f"{orderer} to {stream}")
            process.deaf_to.discard(stream)
            process.turn_in(0)
            self._judge()

        self.scheduler.after(for_us, receives)

    def deafen_root(self, root: str, child: int, replica: int, for_us: int) -> None:
        """Stop the root's live consumer from fetching one replica's deltas for some time."""
        process = self.present(root)
        assert isinstance(process, SimRoot)
        process.deaf_to.add((child, replica))
        self.note(root, f"deaf to {child}.{replica}")
        self.begin_outage(f"{root} to {child}.{replica}", "deaf")
        self._judge()

        def receives() -> None:
            self.over(f"{root} to {child}.{replica}")
            process.deaf_to.discard((child, replica))
            process.turn_in(0)
            self._judge()

        self.scheduler.after(for_us, receives)

    def lose(self, name: str, lives_on_us: int) -> None:
        """Let a record fail permanently: the process ends, but later records are in the log."""
        process = self.present(name)
        if not process.speaks:
            return
        self.note(name, "loses a record")
        self.begin_outage(name, "down")
        self._jolt(f"{name} lost a record")
        process.producer.lose_next = True
        self.scheduler.after(lives_on_us, lambda: self.restart(process) if process.alive else None)

    def damage(self, log_name: str, at: int | None = None) -> None:
        """Replace a record of a log, by default the last one, by bytes that do not decode."""
        log_name = self._first_log(log_name)
        kind = log_name.split(".")[1]
        log = self.broker.log(log_name)
        at = log.last if at is None else at
        if at is None:
            return
        log.damage(at, b"no record" if kind == "results" else None)
        self.note("broker", f"{log_name} is damaged at {at}")
        self._jolt(f"{log_name} damaged")
        self.history.damaged += kind == "ordered"
        self._note_loss(log_name, at + 1)

    def spoil_panes(self, log_name: str, count: int) -> None:
        """Damage the last records of a log of panes, among them usually the last head."""
        log = self.broker.log(log_name)
        offsets = [offset for offset, value in log.values() if value is not None][-count:]
        for offset in offsets:
            log.damage(offset)
        self.note("broker", f"{log_name} is damaged at {offsets}")
        self._jolt(f"{log_name} damaged")

    # A change of the query's definition.

    @property
    def _names(self) -> list[str]:
        """The names of all processes that have been started."""
        others = [q.config for q in self.queries.values() if generation_of(q.name)]
        later = [
            name
            for config in others
            for name in (*config.orderer_names, *config.merger_names, *config.root_names)
        ]
        return [*self.config.names, *(n for n in later if self._present(n) is not None)]

    def change(self) -> None:
        """Start the next generation of q beside it; it takes over when it is ready (rule-29)."""
        if self.q is not self.queries["q"] or "q.g1" in self.queries:
            return
        earlier = self.q
        later = SimQuery(self, replace(earlier.config, name="q.g1"), self.history)
        later.lateness = later.config.lateness(self._learned)
        states = [state for state in earlier.root_states() if state is not None]
        if len(states) == earlier.config.parts:
            answered_us = min(state.stable_from for state in states)
            started_us = earlier.start_time_us
            looks_back_us = earlier.config.join_us
            later.start_time_us = start_of_generation(answered_us, started_us, looks_back_us)
        self.queries[later.name] = later
        self.note(later.name, f"begins at {later.start_time_us}")
        for child in range(len(later.config.children)):
            for replica in range(later.config.replicas):
                self._start(later.orderer_name(child, replica))
                aggregator = self.aggregators.get(f"aggregator/{replica}")
                if aggregator is not None and aggregator.alive and not later.config.rows:
                    aggregator.add((later, child, replica))
        for name in [*later.config.merger_names, *later.config.root_names]:
            self._start(name)
        self._look_whether_ready(earlier, later, self.scheduler.now)

    def has_earlier(self, query: str) -> bool:
        """Whether the registry has an earlier generation of a query that has not ended."""
        return bool(earlier_generations(query, self.queries.keys() - self._ended))

    def _look_whether_ready(self, earlier: SimQuery, later: SimQuery, complete_at: int) -> None:
        period_us, now = self.config.paced(SECOND), self.scheduler.now
        is_complete = self.broker.up and later.has_reached(earlier)
        complete_at = complete_at if is_complete else now
        is_late = now - complete_at >= ROOTS_S_MAX * period_us
        if not is_complete or not (later.is_followed_by_roots or is_late):
            self.scheduler.after(
                period_us, lambda: self._look_whether_ready(earlier, later, complete_at)
            )
            return
        self.note(later.name, "takes over")
        later.take_over(earlier)
        self.q = later
        # The registry has this some time after the record.
        self.scheduler.after(self.scheduler.between(0, period_us), partial(self._end, earlier))
        until = now + round(HAND_OVER_S_MAX * period_us)
        of = earlier.config
        for name in [*of.orderer_names, *of.merger_names, *of.root_names]:
            self._retire_after(name, earlier, later, until)

    def _end(self, earlier: SimQuery) -> None:
        self._ended.add(earlier.name)
        for root in (root for query in self.queries.values() for root in query.roots.values()):
            if root.awaits_end and root.alive:
                root.turn_in(0)
        self.note(earlier.name, "has ended in the registry")

    def _retire_after(self, name: str, earlier: SimQuery, later: SimQuery, until: int) -> None:
        """End a process of a generation when its successor answers.

        Two nodes do this at times of their own: an old root may outlive the new one.
        """
        wait_us = self.scheduler.between(0, self.config.paced(SECOND))
        if later.answers or self.scheduler.now >= until:
            self._replaced.add(earlier.name)
            self.scheduler.after(wait_us, partial(self._retire, name))
        else:
            self.scheduler.after(wait_us, partial(self._retire_after, name, earlier, later, until))

    def _retire(self, name: str) -> None:
        self.retired.add(name)
        self.held_down.discard(name)
        self.over(name)
        process = self._present(name)
        if process is not None:
            process.kill()
        self.history.reported_states.append(Note(self.scheduler.now, name, "ended"))

    def as_named_now(self, whom: str) -> str:
        """A fault's target; after a change its counterpart in the new generation."""
        if self.q.name == "q" or any(self._present(n) is None for n in self.q.config.root_names):
            return whom
        return _OF_Q.sub(rf"\1.g{generation_of(self.q.name)}.", whom)

    # Logs.

    def log_at(self, at: tuple[str, int]) -> Log[object]:
        """Return the model of a partition. The only partition of a topic has the topic's name."""
        topic, partition = at
        if topic.startswith((f"{CENTRE.prefix}sw.state.", f"{CENTRE.prefix}sw.panes.")):
            topic = topic.removeprefix(CENTRE.prefix)  # in the model a site has none
        alone = topic.startswith("sw.source.") or (topic.startswith("sw.state.") and not partition)
        return self.broker.log(topic if alone else f"{topic}:{partition}")

    def source_log(self, stream: str) -> Log[object]:
        """Return a stream's source log."""
        return self.broker.log(f"sw.source.{stream}")

    def logs_of(self, stream: str) -> list[str]:
        """Return the source logs of a stream: for a topic as many as are recorded (rule-30)."""
        if stream not in self.topics:
            return [stream]
        return [f"{stream}.{partition}" for partition in range(self.partitions[stream])]

    def hints_of(self, proxy: ProxyName) -> dict[str, Any]:
        """Return what the disk of a proxy keeps of its progress."""
        return self._hints.setdefault(str(proxy), {})

    @property
    def registry_log(self) -> Log[object]:
        """The registry's entries for streams."""
        return self.broker.log("sw.registry")

    def steps_of(self, stream: str) -> list[Step]:
        """Return the steps that a proxy recovers for its stream."""
        entries = [entry for _, entry in self.registry_log.values() if isinstance(entry, tuple)]
        return [step for of, step in entries if of == stream]

    def recorded(self, stream: str, step: Step) -> None:
        """Record a step in the registry; a little later all processes have read it (rule-15)."""
        known_at = self.scheduler.now + self.config.paced(FOLLOW_US)
        in_time = known_at <= step.from_us
        self.history.learned.append(Learned(stream, step, in_time=in_time))
        self.scheduler.at(known_at, lambda: self._follow(stream, step))

    def _follow(self, stream: str, step: Step) -> None:
        self._learned.setdefault(stream, []).append(step)
        for query in self.queries.values():
            query.lateness = query.config.lateness(self._learned)

    def grids_of(self, stream: str) -> list[Grid]:
        """Return the cut points of the queries that read a stream."""
        configs = [query.config for query in self.queries.values()]
        return [config.grid for config in configs if stream in config.streams]

    # The history.

    def note(self, process: str, what: str) -> None:
        """Record an event."""
        self.history.notes.append(Note(self.scheduler.now, process, what))

    def _judge(self) -> None:
        for query in self.queries.values():
            query.judge()

    def _sample(self) -> None:
        held: dict[str, int] = {}
        for query in self.queries.values():
            held |= query.held()
        self.history.samples.append(Sample(self.scheduler.now, held))
        self.scheduler.after(self.config.paced(SECOND), self._sample)

    # The run.

    def run(self, for_us: int) -> None:
        """Let time pass."""
        self.scheduler.run_until(self.scheduler.now + for_us)

    def heal(self) -> None:
        """End every fault."""
        for name in sorted(self.held_down - self.retired):
            self.bring_back(name)
        for stream in self.config.all_streams:
            self.spools[stream].silent_until = self.spools[stream].full_until = -1
            self._wake_proxies(stream)
        for topic in self.topics.values():
            topic.accept()
            if topic.is_away:
                topic.make(self.config.shares.get(topic.name, 1))
        for name in self._names:
            self.present(name).producer.late_us = 0
            if abs(self.skew_us.get(name, 0)) > self.config.margin_us // 2:
                self.skew_us[name] = 0
                self.kill(name)  # adopts the correct time
        for name in list(self.overloaded_us):
            self._relieve(name)
        for whom in list(self._outages_now):
            # Delayed records are still in flight, and arrive by themselves.
            late = whom.startswith(_LATE)
            if not late and whom not in self._names and whom != "broker":
                self.over(whom)
        for query in self.queries.values():
            for orderer in query.orderers.values():
                orderer.deaf_to.clear()
                orderer.turn_in(0)
            for root in query.roots.values():
                root.deaf_to.clear()
                root.cut_off(False)
                root.turn_in(0)

    def finish(self) -> History:
        """Complete the history with the source logs."""
        history = self.history
        for query in self.queries.values():
            query.finish()
        for whom in list(self._outages_now):
            self.over(whom)
        history.ended_at = self.scheduler.now
        for stream in self.config.all_streams:
            if stream in self.topics:
                history.logs_of[stream] = self.logs_of(stream)
                history.topics[stream] = self.topics[stream].history
            for log in self.logs_of(stream):
                history.source_logs[log] = [
                    (offset, value)
                    for offset, value in self.source_log(log).written()
                    if isinstance(value, SourceRecord)
                ]
        return history
