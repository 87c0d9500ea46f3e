"""Names of a deployment's fragments, and of its topics, groups and transactional ids in Kafka.

``Names`` alone builds names in Kafka, for the processes, the Spark jobs, the client, and the access
control lists (which use prefixes of names: all source logs begin with ``source("")``). Names follow
from the deployment file alone. Two deployments can share a cluster if their ``prefix`` differs. The
prefix comes first (``plant-7.sw.results.climate.stable``), so that an access rule, a quota or a
listing by prefix covers a whole deployment. A stream's own ``topic`` belongs to the user and is
never renamed.

The topics of ``schemas/topics.toml`` have the same names; a test checks that the two agree.

A query that is changed while it runs continues as a new *generation*. Generation 1 of ``climate``
has the name ``climate.g1``: a query of its own, with fragments, ordered logs and deltas of its own.
Results, state records and the fence of a part belong to the query and have one name for all
generations (rule-29).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal, Self, TypeAlias

from slackwater.model.errors import UsageError

ResultKind = Literal["stable", "tentative", "corrections"]
RESULT_KINDS: Final[tuple[ResultKind, ...]] = ("stable", "tentative", "corrections")

OURS: Final = "sw."
"""Start of the name of every topic and transactional id, after the prefix."""
TOPIC_CHARS_MAX: Final = 249
"""Kafka's limit."""
PREFIX_CHARS_MAX: Final = 100
"""Leaves room for the longest name after it: a query's name has at most 63 characters."""

PROXY: Final = "proxy"
ORDERER: Final = "orderer"
AGGREGATOR: Final = "aggregator"
MERGER: Final = "merger"
UPLINK: Final = "uplink"
ROOT: Final = "root"
DELIVERY: Final = "delivery"
"""Kinds of fragments, and first parts of their names: the rows of ``model/kinds.py``."""

NAMED_MAX: Final = 5
"""Names that a message lists, by default."""

_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*[._-]", re.ASCII)
_QUERY: Final = r"[a-z][a-z0-9-]*(?:\.g[1-9]\d*)?"
_GENERATION: Final = re.compile(r"([a-z][a-z0-9-]*)\.g([1-9]\d{0,8})", re.ASCII)
_ORDERER: Final = re.compile(rf"({_QUERY})\.(\d+)\.([a-z])", re.ASCII)
_PROXY: Final = re.compile(r"([^./]+)(?:\.([1-9]\d*))?", re.ASCII)
_ROOT: Final = re.compile(rf"({_QUERY})\.(\d+)(?:\.([a-z]))?", re.ASCII)
_COPY_OF_CHILD: Final = _ORDERER
_DELIVERY: Final = re.compile(rf"({_QUERY})\.alerts", re.ASCII)

ONLY: Final = -1
"""The copy of a part that has one."""


def some_of(names: Sequence[str], most: int = NAMED_MAX) -> str:
    """List names in a message: "a, b and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def generation_name(query: str, generation: int) -> str:
    """The name of a query's generation: ``climate`` is generation 0, then ``climate.g1``."""
    assert generation >= 0
    return f"{query}.g{generation}" if generation else query


def base_of(query: str) -> str:
    """The query that a generation belongs to: ``climate`` of ``climate.g1``."""
    match = _GENERATION.fullmatch(query)
    return query if match is None else match[1]


def generation_of(query: str) -> int:
    """The number of a generation: 1 of ``climate.g1``, 0 of ``climate``."""
    match = _GENERATION.fullmatch(query)
    return 0 if match is None else int(match[2])


def is_query_name(name: str) -> bool:
    """Return whether a query, or a generation of one, can have this name."""
    return re.fullmatch(_QUERY, name, re.ASCII) is not None


def earlier_generations(query: str, queries: Iterable[str]) -> list[str]:
    """The earlier generations of a query among these, the last one first."""
    base, generation = base_of(query), generation_of(query)
    found = [q for q in queries if base_of(q) == base and generation_of(q) < generation]
    return sorted(found, key=generation_of, reverse=True)


def latest_generation(query: str, queries: Iterable[str]) -> str | None:
    """The latest generation of a query among these."""
    return max((q for q in queries if base_of(q) == query), key=generation_of, default=None)


def earliest_generation(query: str, queries: Iterable[str]) -> str | None:
    """The earliest generation of a query among these."""
    return min((q for q in queries if base_of(q) == query), key=generation_of, default=None)


def replica_letter(replica: int) -> str:
    """Return the letter of a replica in names: 0 is ``a``."""
    assert 0 <= replica < 26
    return chr(ord("a") + replica)


@dataclass(frozen=True, slots=True, order=True)
class OrdererName:
    """One replica of one child of a query: ``climate.0.a``."""

    query: str
    child: int
    replica: int

    @classmethod
    def parse(cls, text: str) -> OrdererName:
        """The inverse of ``str``; ``UsageError`` if it is none."""
        match = _ORDERER.fullmatch(text)
        if match is None:
            raise UsageError(f"{text}: an orderer is named QUERY.CHILD.REPLICA, as in climate.0.a")
        query, child, letter = match.groups()
        return cls(query, int(child), ord(letter) - ord("a"))

    def __str__(self) -> str:
        return f"{self.query}.{self.child}.{replica_letter(self.replica)}"

    @property
    def process(self) -> str:
        """As ``slackwater status`` prints it: ``orderer/climate.0.a``."""
        return f"{ORDERER}/{self}"


@dataclass(frozen=True, slots=True, order=True)
class _CopyOfChild:
    """One of several copies of what belongs to one child of a query: ``climate.0.a``."""

    kind: ClassVar[str]
    query: str
    child: int
    copy: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of ``str``; ``UsageError`` if it is none."""
        match = _COPY_OF_CHILD.fullmatch(text)
        if match is None:
            article = "an" if cls.kind == UPLINK else "a"
            raise UsageError(
                f"{text}: {article} {cls.kind} is named QUERY.CHILD.COPY, as in climate.0.a"
            )
        query, child, letter = match.groups()
        return cls(query, int(child), ord(letter) - ord("a"))

    def __str__(self) -> str:
        return f"{self.query}.{self.child}.{replica_letter(self.copy)}"

    @property
    def process(self) -> str:
        """As ``slackwater status`` prints it: ``merger/climate.0.a``."""
        return f"{self.kind}/{self}"


class MergerName(_CopyOfChild):
    """One copy of the merger of one child of a query."""

    __slots__ = ()
    kind = MERGER


class UplinkName(_CopyOfChild):
    """One copy of the uplink of one child of a query, at a site."""

    __slots__ = ()
    kind = UPLINK


@dataclass(frozen=True, slots=True, order=True)
class RootName:
    """A part of a query's results, ``climate.0``, or one of its two copies: ``climate.0.a``.

    A part with one copy has one name. The state record of a part has the name of the part.
    """

    query: str
    part: int
    copy: int = ONLY

    @classmethod
    def parse(cls, text: str) -> RootName:
        """The inverse of ``str``; ``UsageError`` if it is none."""
        match = _ROOT.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text}: a root is named QUERY.PART, as in climate.0, or QUERY.PART.COPY"
            )
        query, part, letter = match.groups()
        return cls(query, int(part), ONLY if letter is None else ord(letter) - ord("a"))

    def __str__(self) -> str:
        part = f"{self.query}.{self.part}"
        return part if self.copy == ONLY else f"{part}.{replica_letter(self.copy)}"

    @property
    def process(self) -> str:
        """As ``slackwater status`` prints it: ``root/climate.0``."""
        return f"{ROOT}/{self}"


@dataclass(frozen=True, slots=True, order=True)
class ProxyName:
    """A proxy of a stream: ``room-1``; the second of a stream with several is ``lab.1``.

    Of a stream with n proxies, this one reads the partitions p of its topic with p mod n = share.
    """

    stream: str
    share: int = 0

    @classmethod
    def parse(cls, text: str) -> ProxyName:
        """The inverse of ``str``; ``UsageError`` if it is none."""
        match = _PROXY.fullmatch(text)
        if match is None:
            raise UsageError(f"{text}: a proxy is named STREAM or STREAM.SHARE, as in lab.1")
        stream, share = match.groups()
        return cls(stream, int(share or 0))

    def __str__(self) -> str:
        return f"{self.stream}.{self.share}" if self.share else self.stream

    @property
    def process(self) -> str:
        """As ``slackwater status`` prints it: ``proxy/room-1``, ``proxy/lab.1``."""
        return f"{PROXY}/{self}"


@dataclass(frozen=True, slots=True, order=True)
class DeliveryName:
    """What delivers a query's results, to its alerts: ``climate.alerts``."""

    query: str

    @classmethod
    def parse(cls, text: str) -> DeliveryName:
        """The inverse of ``str``; ``UsageError`` if it is none."""
        match = _DELIVERY.fullmatch(text)
        if match is None:
            raise UsageError(f"{text}: a delivery is named QUERY.alerts, as in climate.alerts")
        return cls(match[1])

    def __str__(self) -> str:
        return f"{self.query}.alerts"

    @property
    def process(self) -> str:
        """As ``slackwater status`` prints it: ``delivery/climate.alerts``."""
        return f"{DELIVERY}/{self}"


FragmentName: TypeAlias = (
    ProxyName | OrdererName | MergerName | UplinkName | RootName | DeliveryName
)


def kind_of(process: str) -> str:
    """``orderer`` of ``orderer/climate.0.a``; a name without a slash is its own kind."""
    return process.partition("/")[0]


def is_within(process: str, name: str) -> bool:
    """Return whether the name of a process is this one, or begins with its components.

    ``root/q.1.a`` is within ``root/q.1``, within ``root/q`` and within ``root``; ``root/q.10`` is
    not within ``root/q.1``.
    """
    return process == name or process.startswith((f"{name}/", f"{name}."))


def own_name(process: str) -> str:
    """``climate.0.a`` of ``orderer/climate.0.a``; empty if it has none."""
    return process.partition("/")[2]


def copy_names(query: str, part: int, copies: int) -> tuple[RootName, ...]:
    """The copies of a part; one of a part with one copy has the part's name."""
    if copies == 1:
        return (RootName(query, part),)
    return tuple(RootName(query, part, copy) for copy in range(copies))


def part_names(query: str, part: int) -> tuple[RootName, ...]:
    """All names that a root of a part may have: of a reader that does not know of its copies."""
    return (RootName(query, part), *copy_names(query, part, 2))


def is_orderer_of(process: str, query: str) -> bool:
    """Return whether the process is an orderer of this query."""
    match = _ORDERER.fullmatch(own_name(process))
    return kind_of(process) == ORDERER and match is not None and match[1] == query


def stream_of(process: str) -> str:
    """The stream of a proxy; empty for other processes, as for one that serves several streams."""
    match = _PROXY.fullmatch(own_name(process))
    return match[1] if kind_of(process) == PROXY and match is not None else ""


def root_of(process: str) -> RootName | None:
    """The name of a root; None for other processes."""
    is_root = kind_of(process) == ROOT and _ROOT.fullmatch(own_name(process)) is not None
    return RootName.parse(own_name(process)) if is_root else None


@dataclass(frozen=True, slots=True)
class Names:
    """The names of the deployment with this prefix; ``""`` if it is alone on its cluster."""

    prefix: str = ""

    def __post_init__(self) -> None:
        if (reason := why_no_prefix(self.prefix)) is not None:
            raise ValueError(reason)

    # Topics.

    def source(self, log: str) -> str:
        """The source log of a stream; ``lab.0``: of partition 0 of the topic that ``lab`` reads."""
        return f"{self.prefix}sw.source.{log}"

    def quarantine(self, stream: str) -> str:
        """The topic of a stream's unusable readings."""
        return f"{self.prefix}sw.quarantine.{stream}"

    def ordered(self, query: str, child: int) -> str:
        """The logs of a child's orderers."""
        return f"{self.prefix}sw.ordered.{query}.{child}"

    def deltas(self, query: str, part: int) -> str:
        """The logs of a part's deltas, of all children and replicas."""
        return f"{self.prefix}sw.deltas.{query}.{part}"

    def ordered_of_generations(self, query: str) -> str:
        """The prefix of the ordered logs of all later generations of a query."""
        return f"{self.prefix}sw.ordered.{base_of(query)}.g"

    def deltas_of_generations(self, query: str) -> str:
        """The prefix of the deltas of all later generations of a query."""
        return f"{self.prefix}sw.deltas.{base_of(query)}.g"

    def merged(self, query: str, part: int) -> str:
        """The logs of a part's merged panes, of all children."""
        return f"{self.prefix}sw.merged.{query}.{part}"

    def merged_of_generations(self, query: str) -> str:
        """The prefix of the merged panes of all later generations of a query."""
        return f"{self.prefix}sw.merged.{base_of(query)}.g"

    def state(self, query: str) -> str:
        """The state records of a query's fragments, of all its generations."""
        return f"{self.prefix}sw.state.{base_of(query)}"

    def panes(self, query: str) -> str:
        """The panes and heads of a query's roots."""
        return f"{self.prefix}sw.panes.{query}"

    def panes_of_generations(self, query: str) -> str:
        """The prefix of the panes of all later generations of a query."""
        return f"{self.prefix}sw.panes.{base_of(query)}.g"

    def results(self, query: str, kind: ResultKind) -> str:
        """One of a query's three result topics, of all its generations."""
        return f"{self.prefix}sw.results.{base_of(query)}.{kind}"

    def alerts(self, query: str) -> str:
        """The alerts of a query, of all its generations, and the positions of their evaluation."""
        return f"{self.prefix}sw.alerts.{base_of(query)}"

    @property
    def heartbeats(self) -> str:
        """The heartbeats of all processes."""
        return f"{self.prefix}sw.heartbeats"

    @property
    def registry(self) -> str:
        """The event clock and the queries."""
        return f"{self.prefix}sw.registry"

    def topic(self, bare: str) -> str:
        """The topic whose name without prefix is ``bare``."""
        return self.prefix + bare

    def is_ours(self, topic: str) -> bool:
        """Return whether the topic has a name of this deployment."""
        return topic.startswith(self.prefix + OURS)

    # Transactional ids and groups.

    def transactional_id(self, query: str, part: int) -> str:
        """The fence of a query's part, of all its generations (rule-27, rule-29)."""
        return f"{self.prefix}sw.{base_of(query)}.{part}"

    def delivery_id(self, query: str) -> str:
        """The fence of a query's delivery, of all its generations."""
        return f"{self.prefix}sw.{base_of(query)}.alerts"

    def group(self, process: str) -> str:
        """Prefix of Spark's group ids of an aggregator; no process joins a group."""
        return f"{self.prefix}sw-{process.replace('/', '-')}"

    @property
    def assigned_group(self) -> str:
        """The group id of consumers that join no group; the client library requires one."""
        return f"{self.prefix}slackwater-assigned"


def why_no_prefix(prefix: str) -> str | None:
    """Return why a prefix is invalid; None if it is valid."""
    if not prefix:
        return None
    if len(prefix) > PREFIX_CHARS_MAX:
        return f"{len(prefix)} characters are too many for a prefix: at most {PREFIX_CHARS_MAX}"
    if not _PREFIX.fullmatch(prefix):
        return (
            f"{prefix!r} is not a valid prefix: use ASCII letters, digits and . _ -, begin with a"
            " letter or digit, and end with . _ or -, as in plant-7."
        )
    if prefix.startswith(OURS):
        return f"{prefix!r} is not a valid prefix: {OURS} is used without a prefix"
    return None


UNPREFIXED: Final = Names()
"""The names of the only deployment on its cluster."""
