"""Plans: all inputs of a run, as a value that can be printed and repeated.

A plan (a deployment and its faults) is drawn from a seed before the run. Runs are small and fast:
the bound X is a fraction of a second, the environment is scaled with it, and the lengths of faults
are drawn relative to X. A run of some seconds therefore has as many failures shorter than, about as
long as, and much longer than X as one of a minute would.
"""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, asdict, dataclass, fields, replace
from random import Random
from typing import Any, Final

from tests.simulator.clock import MS, SECOND
from tests.simulator.config import ROW_BYTES, Added, Chain, Machines, Sharing, WorldConfig, spread
from tests.simulator.faults import (
    OF_SITES,
    OF_TOPICS,
    Fault,
    plan,
    plan_chain,
    plan_copies,
    plan_damage,
    plan_devices,
    plan_heads,
    plan_mergers,
    plan_overload,
    plan_result_damage,
    plan_sharing,
    plan_sites,
    plan_topics,
)
from tests.simulator.readings import Habits, shared_keys

from slackwater.model.child_logs import dealt
from slackwater.model.names import ProxyName
from slackwater.protocols.common.line import Policy

_ROOT: Final = re.compile(r"\broot/\w+\.\d+")


@dataclass(frozen=True)
class Plan:
    """``seed`` determines the remaining randomness: delays, readings, records lost by a kill."""

    seed: int
    config: WorldConfig
    length_us: int
    faults: tuple[Fault, ...]

    def to_json(self) -> str:
        """Return one line with the values that differ from the defaults."""
        config = {
            f.name: value
            for f in fields(WorldConfig)
            if (value := getattr(self.config, f.name)) != _default(f)
        }
        if "habits" in config:
            config["habits"] = asdict(self.config.habits)
        if "policy" in config:
            config["policy"] = asdict(self.config.policy)
        if self.config.chain is not None:
            config["chain"] = asdict(self.config.chain)
        if self.config.machines is not None:
            config["machines"] = asdict(self.config.machines)
        if self.config.sharing is not None:
            config["sharing"] = asdict(self.config.sharing)
        if self.config.added is not None:
            config["added"] = asdict(self.config.added)
        complete = {"seed": self.seed, "length_us": self.length_us, "config": config}
        return json.dumps({**complete, "faults": [str(f) for f in self.faults]})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Parse the form of ``to_json``."""
        data = json.loads(text)
        config = data["config"]
        if "habits" in config:
            config["habits"] = Habits(**config["habits"])
        if "policy" in config:
            config["policy"] = Policy(**config["policy"])
        if "children" in config:
            config["children"] = tuple(map(tuple, config["children"]))
        for name in ("zombie_us", "fetch_us", "restart_us"):
            if name in config:
                config[name] = tuple(config[name])
        if "chain" in config:
            chain = {k: v for k, v in config["chain"].items() if k != "children"}
            children = tuple(map(tuple, config["chain"]["children"]))
            config["chain"] = Chain(children=children, **chain)
        if "machines" in config:
            of = config["machines"]
            named = {name: tuple(of[name]) for name in ("controllers", "nodes")}
            config["machines"] = Machines(**{**of, **named})
        if "added" in config:
            added = {k: v for k, v in config["added"].items() if k != "children"}
            children = tuple(map(tuple, config["added"]["children"]))
            config["added"] = Added(children=children, **added)
        if "sharing" in config:
            config["sharing"] = Sharing(**config["sharing"])
        faults = tuple(Fault.parse(text) for text in data["faults"])
        return cls(data["seed"], WorldConfig(**config), data["length_us"], faults)

    @property
    def command(self) -> str:
        """Return the command that repeats this run."""
        if self.config.machines is None and self == draw(self.seed):
            return f"python -m tests.simulator --seed {self.seed}"
        return f"python -m tests.simulator --plan '{self.to_json()}'"


def _default(field: Any) -> Any:
    return field.default if field.default is not MISSING else field.default_factory()


def draw(seed: int) -> Plan:
    """Draw the plan of a seed."""
    rng = Random(f"plan/{seed}")
    config = clamp(replace(draw_config(rng), aggregate_us=draw_aggregate_us(seed)))
    length_us = 2_000 * MS + rng.choice([4, 6]) * config.bound_us
    faults = plan(rng, config, length_us, rng.choice([1, 2, 3, 4, 6, 9]))
    complete = Plan(seed, config, length_us, faults)
    draws = (
        draw_unlike,
        draw_join,
        draw_rows,
        draw_chain,
        draw_learns,
        draw_damage,
        draw_overload,
        draw_hosted,
        draw_sharing,
        draw_changed,
        draw_devices,
        draw_topics,
        draw_history,
        draw_shares,
        draw_copies,
        draw_having,
        draw_by_log,
        draw_heads,
        draw_mergers,
        draw_sites,
    )
    for more in draws:
        complete = more(complete)
    return complete


def draw_config(rng: Random) -> WorldConfig:
    """Draw a deployment: small, but of every shape."""
    streams = [f"s{i + 1}" for i in range(rng.randint(1, 3))]
    bound = rng.choice([300, 300, 500, 800]) * MS
    size = rng.choice([200, 300, 400]) * MS
    slide = rng.choice([size, size, size, size // 2, size * 3 // 10])
    disorder = rng.choice([0, 10 * MS, 60 * MS])
    config = WorldConfig(
        children=spread(streams, rng.randint(1, min(2, len(streams)))),
        replicas=rng.choice([1, 1, 2, 2, 3]),
        parts=rng.choice([1, 1, 1, 2]),
        window_us=size,
        slide_us=slide,
        w_us=rng.choice([50, 65, 100]) * MS,
        bound_us=bound,
        margin_us=rng.choice([20, 30]) * MS,
        policy=Policy(
            rng.choice(["process", "process", "delay"]),
            rng.choice(["process", "process", "process", "delay", "suspend"]),
        ),
        disorder_us=disorder,
        expect_every_us={rng.choice(streams): 200 * MS} if rng.random() < 0.15 else {},
        habits=Habits(
            every_us=rng.choice([10, 40, 150]) * MS,
            jitter_us=disorder,
            keys=rng.randint(1, 2),
            late_every=rng.choice([0, 0, 20]),
            late_us=2 * bound,
        ),
        record_readings_max=rng.choice([3, 10_000]),
        piece_bytes_max=rng.choice([100, 8 << 20]),
        ahead_buckets_max=rng.choice([8, 30, 600]),
        ahead_bytes_max=rng.choice([2_000, 256 << 20]),
        backlog_records_max=rng.choice([6, 15, 1000]),
        seek_period_us=30 * MS,
        pace=0.3,
        zombie_us=rng.choice([(0, 100 * MS), (bound, 3 * bound)]),
        restart_us=rng.choice([(50 * MS, 250 * MS), (bound, 2 * bound)]),
    )
    return replace(config, skew_us=draw_skew(rng, config))


def clamp(config: WorldConfig) -> WorldConfig:
    """Exclude unintended violations of declarations, and overload by catch-up.

    Sensors keep their watermarks, and no aggregator is at its limit while it catches up.
    """
    kept_us = kept_watermark_us(config)
    every = {stream: max(us, kept_us) for stream, us in config.expect_every_us.items()}
    readings_s = max(map(len, config.children)) * SECOND / config.habits.every_us
    is_full = aggregating_us(config, readings_s) > SECOND / 3
    aggregate_us = 1 * MS if is_full else config.aggregate_us
    return replace(config, expect_every_us=every, aggregate_us=aggregate_us)


def kept_watermark_us(config: WorldConfig) -> int:
    """Return an ``expect_every`` that a sensor with three late readings in a row keeps."""
    return 4 * config.habits.every_us + config.habits.jitter_us


def aggregating_us(config: WorldConfig, readings_s: float) -> float:
    """Return an aggregator's time for the pieces of a second with this many readings, or pairs."""
    return readings_s * 48 / config.piece_bytes_max * config.aggregate_us


def draw_aggregate_us(seed: int) -> int:
    """Draw slow aggregators (trace-33), from a separate generator: other draws do not change."""
    return Random(f"aggregator/{seed}").choice([0, 0, 1, 4]) * MS


def draw_unlike(plan: Plan) -> Plan:
    """In half of the runs streams have different watermark lags, up to seconds (decision 36).

    Late input has more time to arrive, so most faults of such a run are masked: it gets one more
    fault that is not. Drawn last, from a separate generator, so that a seed's other draws do not
    change.
    """
    rng, config = Random(f"lateness/{plan.seed}"), plan.config
    most = rng.choice([0, 0, 300 * MS, 3 * SECOND])
    if not most:
        return plan
    late = rng.sample(config.streams, rng.randint(1, max(1, len(config.streams) - 1)))
    more = {s: rng.randrange(most // 2, most) // MS * MS for s in late}
    kept_us = kept_watermark_us(config)
    every = {s: rng.choice([kept_us, 2 * kept_us]) for s in config.streams if rng.random() < 0.15}
    config = replace(
        config,
        disorder_more_us=more,
        expect_every_us={**every, **config.expect_every_us},
    )
    # Lines cannot join if H in bytes is less than the skew of the streams (decision 36).
    # A record with one reading takes 48 bytes, and a boundary 24; a bucket has several.
    spacing = 48 * config.lateness_us // config.habits.every_us
    spacing += 4 * 24 * config.lateness_us // config.w_us
    room = 2 * max(map(len, config.children)) * spacing
    config = replace(config, ahead_bytes_max=config.ahead_bytes_max + room)
    at, length = (rng.randrange(1, 4) * config.bound_us for _ in range(2))
    unmasked = Fault(config.lateness_us + at, "silence", max(more, key=config.disorder_of), length)
    faults = sorted([*plan.faults, unmasked], key=lambda f: f.at)
    return replace(plan, config=config, faults=tuple(faults))


def draw_learns(plan: Plan) -> Plan:
    """Half of the streams whose watermarks derive from readings learn ``expect_every``.

    At first a gap longer than the initial value is masked; otherwise sensors would violate their
    declaration at random. Drawn from a separate generator, so that a seed's other draws do not
    change.

    See trace-37.
    """
    rng, config = Random(f"learns/{plan.seed}"), plan.config
    habits = config.habits
    masked_us = config.bound_us - config.stages * config.margin_us - 120 * MS
    gap_us = 3 * habits.every_us // 2 + habits.jitter_us
    if habits.late_every:
        gap_us = kept_watermark_us(config)  # late readings, too, leave a gap
    first_us = max(5 * MS, gap_us - max(0, masked_us) // 2)
    learns = {
        stream: first_us
        for stream, most_us in config.expect_every_us.items()
        if rng.randrange(2) and first_us < most_us
    }
    return replace(plan, config=replace(config, learns=learns))


def draw_join(plan: Plan) -> Plan:
    """In some runs the query is a join (trace-26): one child has all streams.

    Drawn from a separate generator, so that a seed's other draws do not change.
    """
    rng, config = Random(f"join/{plan.seed}"), plan.config
    if len(config.streams) == 1 or len(config.children) > 1 or rng.randrange(2):
        return plan
    every = config.habits.every_us
    within = rng.choice([1 * MS, every, config.window_us])
    pairs_s = 2 * within * SECOND / every**2
    if aggregating_us(config, pairs_s) > SECOND / 2:
        within = every  # more pairs than a slow aggregator can process
    return replace(plan, config=replace(config, join_us=within))


def draw_rows(plan: Plan) -> Plan:
    """In some runs the query has no window (trace-21); from a separate generator."""
    rng, config = Random(f"rows/{plan.seed}"), plan.config
    if config.join_us or rng.randrange(8):
        return plan
    config = replace(config, rows=True, window_us=config.w_us, slide_us=config.w_us)
    return replace(plan, config=config)


def draw_chain(plan: Plan) -> Plan:
    """In a quarter of the runs a query p reads the results of q (trace-20), with faults in both.

    Drawn last, from a separate generator, so that a seed's other draws do not change.
    """
    rng, config = Random(f"chain/{plan.seed}"), plan.config
    if rng.randrange(4):
        return plan
    own = rng.choice([(), ("t1",), ("t1",), config.streams[:1]])
    sizes = [100 * MS, config.slide_us, config.window_us, 2 * config.slide_us]
    size = 300 * MS if config.rows else rng.choice(sizes)
    chain = Chain(
        children=spread(("q", *own), rng.randint(1, 1 + len(own))),
        replicas=rng.choice([1, 2]),
        parts=rng.choice([1, 1, 2]),
        window_us=size,
        slide_us=rng.choice([size, size, size // 2]),
        rows=rng.randrange(4) == 0,
    )
    config = replace(
        config,
        chain=chain,
        backlog_rows_max=8 * config.backlog_records_max,
        ahead_bytes_max=config.ahead_bytes_max + result_bytes(config),
    )
    config = replace(config, skew_us=skew_of_more(rng, config))
    assert config.reader is not None
    faults = plan_chain(rng, config.reader, plan.length_us)
    faults = tuple(sorted([*plan.faults, *faults], key=lambda f: f.at))
    return replace(plan, config=config, faults=faults)


def draw_damage(plan: Plan) -> Plan:
    """In a sixth of the runs records of source logs, deltas or results are damaged.

    Drawn last, from a separate generator, so that a seed's other draws do not change.

    See trace-15, rule-11.
    """
    rng = Random(f"damage/{plan.seed}")
    if rng.randrange(6):
        return plan
    more = plan_damage(rng, rng.choice(plan.config.queries), plan.length_us)
    if plan.config.chain is not None:
        assert plan.config.reader is not None
        more += plan_result_damage(rng, plan.config.reader, plan.length_us)
    faults = [*plan.faults, *more]
    return replace(plan, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_overload(plan: Plan) -> Plan:
    """In a fifth of the runs roots or orderers are overloaded (trace-38).

    Drawn last, from a separate generator, so that a seed's other draws do not change.
    """
    rng = Random(f"overload/{plan.seed}")
    if rng.randrange(5):
        return plan
    more = plan_overload(rng, rng.choice(plan.config.queries), plan.length_us)
    return replace(plan, faults=tuple(sorted([*plan.faults, *more], key=lambda f: f.at)))


def draw_hosted(plan: Plan) -> Plan:
    """In a third of the runs orderers are added to hosts that already read their logs (rule-12)."""
    is_hosted = not Random(f"hosted/{plan.seed}").randrange(3)
    return replace(plan, config=replace(plan.config, hosted=is_hosted))


def draw_sharing(plan: Plan) -> Plan:
    """In some runs a query r reads q's children (``deployment/sharing.py``), and its roots fail.

    This is one in five of the runs with windows and without a chain. In most of them r's windows
    have the cut points of q's, as the product requires; in the others they add cut points. In half
    of the former r is applied while q runs, and joins its children (trace-50). Drawn last, from
    separate generators, so that a seed's other draws do not change.
    """
    rng, config = Random(f"sharing/{plan.seed}"), plan.config
    if config.rows or config.chain is not None or rng.randrange(5):
        return plan
    alike = [config.slide_us * n for n in (1, 2, 3)]
    size = rng.choice([*alike, 100 * MS, 250 * MS, 700 * MS])
    sharing = Sharing(size, rng.choice([size, size, size // 2, config.slide_us]))
    sharing = replace(sharing, slide_us=min(size, sharing.slide_us))
    # Each additional cut point adds a boundary to the bytes of H (decision 36).
    room = 2 * max(map(len, config.children)) * 4 * 24 * 2 * config.lateness_us // sharing.slide_us
    joining = Random(f"joining/{plan.seed}")
    if size in alike and not config.join_us and joining.randrange(2):
        joins_us = joining.randrange(plan.length_us // 8, plan.length_us // 2) // MS * MS
        sharing = replace(sharing, joins_us=joins_us)
    config = replace(config, sharing=sharing, ahead_bytes_max=config.ahead_bytes_max + room)
    config = replace(config, skew_us=skew_of_more(rng, config))
    assert config.reader is not None
    faults = [*plan.faults, *plan_sharing(rng, config.reader, plan.length_us)]
    if sharing.joins_us:
        roots = tuple(config.reader.root_names)
        faults = [f for f in faults if f.at > sharing.joins_us or not f.whom.startswith(roots)]
        at = [sharing.joins_us * n // 4 // MS * MS for n in (2, 3, 4)]
        faults += [Fault(each, "truncate") for each in at[: joining.randrange(4)]]
    return replace(plan, config=config, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_changed(plan: Plan) -> Plan:
    """In some runs q's definition is changed, so that a new generation takes over (rule-29).

    This is one in four of the runs without a query that reads q's children; another one may read
    its results. Drawn last, from a separate generator.
    """
    rng, config = Random(f"changed/{plan.seed}"), plan.config
    if config.sharing is not None or rng.randrange(4):
        return plan
    at = rng.randrange(config.bound_us // 2, plan.length_us) // MS * MS
    faults = [*plan.faults, Fault(at, "change")]
    return replace(plan, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_devices(plan: Plan) -> Plan:
    """In a quarter of the runs the clock of a device is ahead or behind (trace-45).

    Drawn last, from a separate generator.
    """
    rng = Random(f"devices/{plan.seed}")
    if rng.randrange(4):
        return plan
    faults = [*plan.faults, *plan_devices(rng, plan.config, plan.length_us)]
    return replace(plan, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_topics(plan: Plan) -> Plan:
    """In a third of the runs streams read topics, which change (trace-46, trace-47).

    Their watermarks follow the clock: the readings of one partition may be too rare for the
    ``expect_every`` of the stream. Their source logs are not damaged: that a proxy sends damaged
    records again needs a spool. Drawn last, from a separate generator.
    """
    rng, config = Random(f"topics/{plan.seed}"), plan.config
    may = [s for s in config.all_streams if s not in config.expect_every_us]
    if not may or rng.randrange(3):
        return plan
    topics = {s: rng.randint(1, 3) for s in rng.sample(may, rng.randint(1, len(may)))}
    config = replace(config, topics=topics)
    kept = [
        f for f in plan.faults if f.what != "damage" or f.whom[len("sw.source.") :] not in topics
    ]
    changes = plan_topics(rng, config, plan.length_us)
    # Each log has its share of H, which must hold the skew of the streams (decision 36).
    more = sum(topics.values()) + sum(f.by for f in changes if f.what in {"grow", "remake"})
    config = replace(config, ahead_bytes_max=config.ahead_bytes_max * (1 + more))
    faults = [*kept, *changes]
    return replace(plan, config=config, faults=tuple(sorted(faults, key=lambda f: f.at)))


def draw_by_log(plan: Plan) -> Plan:
    """In half of the runs with topics the children are groups of logs (rule-33), up to eight.

    A topic may have more partitions then. Drawn last, from a separate generator.
    """
    rng, config = Random(f"by log/{plan.seed}"), plan.config
    if not config.topics or config.join_us or rng.randrange(2):
        return plan
    more = rng.choice([0, 0, 0, 6])
    topics = {stream: count + more for stream, count in config.topics.items()}
    logs = sum(topics.get(stream, 1) for stream in config.inputs)
    wanted = max(len(config.children), rng.choice([2, 2, 3, 4, 8]))
    if logs < 2 or logs < wanted <= len(config.children):
        return plan
    return replace(plan, config=by_log(replace(config, topics=topics), min(wanted, logs)))


def by_log(config: WorldConfig, children: int) -> WorldConfig:
    """Return the deployment with its logs dealt out to so many children."""
    counts = {source: config.topics.get(source, 1) for source in config.inputs}
    logs = dealt(counts, children, in_order=config.rows)
    return replace(
        config,
        by_log=True,
        children=tuple(map(logs.streams_of, range(children))),
        # Each log has its share of H, which must hold the skew of the streams (decision 36).
        ahead_bytes_max=config.ahead_bytes_max * (1 + sum(counts.values())),
    )


def draw_shares(plan: Plan) -> Plan:
    """In half of the runs with a topic of several partitions two proxies read it (rule-30).

    The topic never has fewer partitions than it has proxies. Drawn last, from a separate generator.
    """
    rng, config = Random(f"shares/{plan.seed}"), plan.config
    shares = {s: 2 for s, n in config.topics.items() if n > 1 and rng.randrange(2)}
    faults = [
        replace(f, by=max(f.by, 2)) if f.what == "remake" and f.whom in shares else f
        for f in plan.faults
    ]
    for stream in shares:
        if rng.randrange(2):
            second = ProxyName(stream, 1).process
            kind = rng.choice(["kill", "pause", "replace"])
            at = rng.randrange(1, plan.length_us) // MS * MS
            faults.append(Fault(at, kind, second, 0 if kind == "kill" else config.bound_us))
    faults.sort(key=lambda f: f.at)
    return replace(plan, config=replace(config, shares=shares), faults=tuple(faults))


def draw_history(plan: Plan) -> Plan:
    """In some runs event time follows the data (``clock: data``), and passes faster than time.

    Between two readings are then up to fifty empty windows. Sources that are silent are behind by
    as much, so H holds more buckets (decision 36). Drawn last, from a separate generator.
    """
    rng, config = Random(f"history/{plan.seed}"), plan.config
    is_plain = config.chain is None and config.sharing is None and config.added is None
    if not is_plain or config.expect_every_us or config.begins_after_us or rng.randrange(4):
        return plan
    speed = rng.choice([2, 10, 50])
    # A stream whose readings, or whose watermarks, come more rarely than X allows would fail.
    habits = replace(config.habits, every_us=min(config.habits.every_us, config.bound_us // 6))
    config = replace(
        config, history_speed=speed, habits=habits, disorder_more_us={}, topics={}, aggregate_us=0,
        ahead_buckets_max=config.ahead_buckets_max * speed, ahead_bytes_max=256 << 20,
    )  # fmt: skip
    faults = tuple(f for f in plan.faults if f.what not in {*OF_TOPICS, "change", "device"})
    return replace(plan, config=config, faults=faults)


def draw_copies(plan: Plan) -> Plan:
    """In half of the runs each part has two copies; what would strike its root strikes one of them.

    Not in a history, in which each process has a clock of its own. Drawn last, from a separate
    generator.
    """
    rng, config = Random(f"copies/{plan.seed}"), plan.config
    if config.history_speed or rng.randrange(2):
        return plan

    def of_copy(whom: str) -> str:
        return _ROOT.sub(lambda of: f"{of[0]}.{rng.choice('ab')}", whom)

    skew_us = {of_copy(name): us for name, us in config.skew_us.items()}
    holding = Random(f"holding/{plan.seed}")
    config = replace(
        config, copies=2, skew_us=skew_us,
        held_read_us=holding.choice([0, 1_000, 5_000, config.held_read_us, config.held_read_us]),
        compare_us=holding.choice([0, 500_000, 1_000_000, 4_000_000]),
    )  # fmt: skip
    faults = [replace(fault, whom=of_copy(fault.whom)) for fault in plan.faults]
    if config.machines is None:  # on machines a copy may not be placed yet
        query = rng.choice(config.queries)
        joins_us = config.sharing.joins_us if config.sharing and query.name == "r" else 0
        faults += [f for f in plan_copies(rng, query, plan.length_us) if f.at > joins_us]
    faults.sort(key=lambda f: f.at)
    return replace(plan, config=config, faults=tuple(faults))


def draw_having(plan: Plan) -> Plan:
    """In a quarter of the runs keys with few values have no row; from a separate generator."""
    rng, config = Random(f"having/{plan.seed}"), plan.config
    if config.rows or rng.randrange(4):
        return plan
    return replace(plan, config=replace(config, count_min=rng.choice([2, 3, 6])))


def draw_heads(plan: Plan) -> Plan:
    """In half of the runs with windows roots store their state; in most of them a root dies.

    Drawn last, from a separate generator.
    """
    rng, config = Random(f"heads/{plan.seed}"), plan.config
    if config.rows or rng.randrange(2):
        return plan
    config = replace(config, head_us=rng.choice([100, 1_000, 4_000]))
    faults = [*plan.faults]
    if config.machines is None and not config.history_speed:
        faults += plan_heads(rng, config, plan.length_us)
        faults.sort(key=lambda f: f.at)
    return replace(plan, config=config, faults=tuple(faults))


def draw_mergers(plan: Plan) -> Plan:
    """In half of the runs with windows the children have mergers, some of which die.

    Not in a history, nor on machines. Drawn last, from a separate generator.
    """
    rng, config = Random(f"mergers/{plan.seed}"), plan.config
    if config.rows or config.history_speed or config.machines or rng.randrange(2):
        return plan
    config = replace(config, mergers=rng.choice([1, 2, 2, 3]))
    faults = [*plan.faults, *plan_mergers(rng, config, plan.length_us)]
    faults.sort(key=lambda f: f.at)
    return replace(plan, config=config, faults=tuple(faults))


def draw_sites(plan: Plan) -> Plan:
    """In most runs with mergers that can have it each child is at a site, alone or with others.

    Its link is cut, and uplinks die; a query r is what the sites answer themselves. Not with what
    is refused for sites: children by log, a query that changes or is read, and learned
    ``expect_every``. It starts at a pane's edge. Drawn last, from a separate generator.
    """
    rng, config = Random(f"sites/{plan.seed}"), plan.config
    is_plain = config.chain is None and config.sharing is None and config.added is None
    is_fit = is_plain and not (config.by_log or config.join_us or config.learns)
    if not config.mergers or not is_fit or not rng.randrange(4):
        return plan
    if config.grid.pane_start(config.start_time_us) != config.start_time_us:
        config = replace(config, window_us=400 * MS, slide_us=rng.choice([200, 400]) * MS)
    sharing = Sharing(config.window_us, config.slide_us)
    of_one = Random(f"sites/{plan.seed}/children").choice([1, len(config.children)])
    config = replace(config, sites=True, sharing=sharing, children_a_site=of_one)
    more = plan_sites(rng, config, plan.length_us)
    kept = (f for f in plan.faults if f.what in OF_SITES)
    faults = sorted([*kept, *more], key=lambda f: f.at)
    return replace(plan, config=config, faults=tuple(faults))


def skew_of_more(rng: Random, config: WorldConfig) -> dict[str, int]:
    """If clocks differ slightly, those of another query's processes differ too."""
    small = config.margin_us // 2
    if not config.skew_us or max(map(abs, config.skew_us.values())) > small:
        return config.skew_us
    new = [name for name in config.names if name not in config.skew_us]
    return {**config.skew_us, **{name: rng.randrange(-small, small) for name in new}}


def result_bytes(config: WorldConfig) -> int:
    """Return the bytes of results to hold if inputs differ in lateness (decision 36)."""
    windows = 2 + 2 * (config.lateness_us + config.bound_us) // config.slide_us
    rows = len(shared_keys) + config.habits.keys * len(config.streams)
    if config.rows:
        rows = len(config.streams) * (1 + config.slide_us // config.habits.every_us)
    logs = 2 * config.parts + 1
    return 2 * logs * windows * (512 + rows * ROW_BYTES)


def draw_skew(rng: Random, config: WorldConfig) -> dict[str, int]:
    """In most runs clocks agree within the margin (trace-12); in some, a few do not at all."""
    small = config.margin_us // 2
    match rng.choice(["none", "none", "small", "small", "large"]):
        case "none":
            return {}
        case "small":
            return {name: rng.randrange(-small, small) for name in config.names}
        case _:
            bound = config.bound_us
            return {
                name: rng.randrange(-2 * bound, 2 * bound)
                for name in rng.sample(config.names, rng.randint(1, 2))
            }
