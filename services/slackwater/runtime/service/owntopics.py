"""The ids of the deployment's own topics: one that was made again is an error (rule-32).

Offsets of source logs, ordered logs and deltas are positions in state records, incarnations and
``seq`` (rule-5, rule-6, rule-26). They mean nothing in a topic that was deleted and made again
under its name: a position may lie beyond its end, or in the middle of other records. So whoever
creates the topics records their ids in the registry. A process compares them before it uses a
topic, and once a second afterwards, with one request for all of its topics.

The reading of a log asks nothing. In the second before the next look a reader may get records of
the new topic. It takes none for a continuation: ids of readings, the frontiers of buckets, ``seq``
of deltas and of results are contiguous, so such a record is a hole or a repetition.

The registry's own id is in it, too. A registry that was made again between two runs is empty, which
``why_registry_is_lost`` finds: state records are written only by fragments of registered queries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, Protocol

from slackwater.model.errors import EnvironmentProblem
from slackwater.model.names import Names
from slackwater.runtime.logs.described import TopicObserver, TopicState
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import TopicLayout, ensure_topics
from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.registry import Registry

ABSENT_LOOKS: Final = 3
"""A topic is deleted when this many looks in a row have not found it. A broker that starts may not
know all topics yet."""


class TopicLostError(EnvironmentProblem):
    """A topic of the deployment has been deleted, or deleted and made again."""


class Observer(Protocol):
    """Describes topics, and looks at watched ones; see ``TopicObserver``."""

    def describe_all(self, topics: Iterable[str]) -> Mapping[str, TopicState | None]:
        """Ask for these topics; None for one that does not exist."""
        ...

    def watch(self, topic: str) -> None:
        """Look at this topic from now on."""
        ...

    def forget(self, topics: Iterable[str]) -> None:
        """Look at these topics no longer."""
        ...

    def latest(self, topic: str) -> TopicState | None:
        """Return what was seen last; ``KeyError`` if it has not been seen yet."""
        ...

    def close(self) -> None:
        """Look no longer."""
        ...


def why_lost(topic: str, names: Names, *, made_again: bool) -> str:
    """Return what has happened to a topic, and what to do, in one sentence."""
    how = "deleted and made again" if made_again else "deleted"
    kind = topic.removeprefix(names.topic("")).split(".")[1]
    remedy = _REMEDIES.get(kind, _ANEW)
    return f"topic {topic} was {how}, and positions in it are worth nothing now: {remedy}"


_ANEW: Final = (
    "no query can be continued exactly; start anew, with another prefix in the deployment file, or"
    " with another --data-dir if its broker is the embedded one"
)
_EMPTIED: Final = (
    "; to delete only what is in such a topic, use its retention.ms or kafka-delete-records, which"
    " keep the topic"
)
_STREAM: Final = (
    "the queries that read its stream cannot be continued exactly; give the stream and these"
    " queries other names in the deployment file"
)
_QUERY: Final = (
    "its query cannot be continued exactly; give the query another name in the deployment file, or"
    " delete it with `slackwater query delete` and apply it under another name"
)
_REMEDIES: Final = {
    "source": _STREAM,
    "quarantine": _STREAM + _EMPTIED,
    "ordered": _QUERY,
    "deltas": _QUERY,
    "merged": _QUERY,
    "panes": _QUERY,
    "state": _QUERY,
    "alerts": _QUERY,
    "results": _QUERY + _EMPTIED,
}


def make_own_topics(
    transport: KafkaTransport, layouts: Collection[TopicLayout], timeout_s: float = 30.0
) -> None:
    """Create missing topics of the deployment, and record the ids of those that are new.

    Raises:
        TopicLostError: a recorded topic is missing, or has another id.
        EnvironmentProblem: the broker does not answer, or a topic contradicts its layout.
    """
    observer, wanted = TopicObserver(transport.cluster), {layout.name for layout in layouts}
    check_recorded(transport, observer, wanted)
    ensure_topics(transport.cluster, layouts, timeout_s)
    record_new(transport, observer, wanted)


def check_recorded(transport: Transport, observer: Observer, topics: Iterable[str]) -> None:
    """Raise ``TopicLostError`` if one of the topics is not the recorded one, before it is made."""
    recorded = _recorded(Registry(transport), observer, transport.names)
    found = observer.describe_all(recorded.keys() & {*topics})
    _compare(recorded, found, transport.names)


def _recorded(registry: Registry, observer: Observer, names: Names) -> Mapping[str, str]:
    """Return the recorded ids; none without a registry, as in a cluster with copies of results."""
    is_there = observer.describe_all([names.registry])[names.registry] is not None
    return registry.topics() if is_there else {}


def record_new(transport: Transport, observer: Observer, topics: Iterable[str]) -> None:
    """Record the ids of topics that have no record; heartbeats have no positions, and need none."""
    registry = Registry(transport)
    unknown = {*topics} - registry.topics().keys() - {transport.names.heartbeats}
    found = observer.describe_all(unknown)
    new = {topic: state.id for topic, state in found.items() if state is not None and state.id}
    if new:
        registry.publish_topics(new)


def _compare(
    known: Mapping[str, str], found: Mapping[str, TopicState | None], names: Names
) -> None:
    """Raise ``TopicLostError`` if a topic does not have its known id."""
    for topic, state in sorted(found.items()):
        if state is None or _is_other(state, known.get(topic, "")):
            raise TopicLostError(why_lost(topic, names, made_again=state is not None))


def _is_other(state: TopicState, known: str) -> bool:
    """Return whether the id is another one; brokers before Kafka 2.8 have none."""
    return bool(state.id and known and state.id != known)


class OwnTopics:
    """The topics of the deployment that the parts of a process use. Thread-safe."""

    def __init__(
        self,
        registry: Registry,
        names: Names,
        observe: Callable[[Callable[[], None]], Observer],
        on_lost: Callable[[str, TopicLostError], None],
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            registry: has the recorded ids.
            names: of the deployment.
            observe: makes the observer; the argument is to be called after each look.
            on_lost: called with the user's name and the error when a topic of this user is found
                to be lost; from the observer's thread, once for each ``use``.
        """
        self._registry, self._names, self._on_lost = registry, names, on_lost
        self._observer = observe(self._look)
        self._known: dict[str, str] = {}
        self._used: dict[str, frozenset[str]] = {}
        self._absent: dict[str, int] = {}
        self._reported: set[str] = set()
        """Users to which a loss has been reported since their last ``use``."""
        self._lock = threading.Lock()

    def use(self, user: str, topics: Iterable[str]) -> None:
        """Check the topics, and watch them until ``leave``.

        Raises:
            TopicLostError: one is missing, or has another id than the recorded one.
            NoAnswerError: the broker does not answer.
        """
        wanted = frozenset(topics)
        if wanted - self._known.keys():
            recorded = _recorded(self._registry, self._observer, self._names)
            with self._lock:
                self._known |= {topic: recorded[topic] for topic in wanted & recorded.keys()}
        found = self._observer.describe_all(wanted)
        _compare(self._known, found, self._names)
        with self._lock:
            # Not recorded by an earlier version: what is there now counts.
            self._known |= {topic: state.id for topic, state in found.items() if state is not None}
            self._used[user] = wanted
            self._reported.discard(user)
        for topic in wanted:
            self._observer.watch(topic)

    def leave(self, user: str) -> None:
        """Stop watching topics that only this user uses."""
        with self._lock:
            self._reported.discard(user)
            left = self._used.pop(user, frozenset()).difference(*self._used.values())
            for topic in left:
                self._absent.pop(topic, None)
                if topic != self._names.registry:  # the only one whose record may be lost with it
                    self._known.pop(topic, None)
        self._observer.forget(left)

    def close(self) -> None:
        """Watch nothing any more."""
        self._observer.close()

    def _look(self) -> None:
        """Compare what the observer has seen last."""
        with self._lock:
            used = dict(self._used)
        for topic in frozenset().union(*used.values()):
            if (error := self._judge(topic)) is None:
                continue
            for user, topics in used.items():
                if topic in topics and user not in self._reported:
                    self._reported.add(user)
                    self._on_lost(user, error)

    def _judge(self, topic: str) -> TopicLostError | None:
        try:
            state, known = self._observer.latest(topic), self._known[topic]
        except KeyError:
            return None  # left meanwhile
        if state is None:
            self._absent[topic] = self._absent.get(topic, 0) + 1
            is_lost = self._absent[topic] >= ABSENT_LOOKS
        else:
            self._absent.pop(topic, None)
            is_lost = _is_other(state, known)
        if not is_lost:
            return None
        return TopicLostError(why_lost(topic, self._names, made_again=state is not None))


def why_registry_is_lost(
    transport: Transport, observer: Observer, queries: Iterable[str]
) -> str | None:
    """Return why a registry without a clock is not a new one; None if it may be new.

    State records are written only by fragments of registered queries (rule-5), after the clock has
    been published, and entries are never removed. So a state topic with records shows that the
    registry has lost its entries.
    """
    names = transport.names
    found = observer.describe_all({names.state(query) for query in queries})
    logs = [(t, p) for t, state in found.items() if state for p in range(state.partitions)]
    ends = transport.end_offsets(logs) if logs else {}
    written = sorted(topic for (topic, _), end in ends.items() if end)
    if not written:
        return None
    return (
        f"topic {names.registry} does not have the deployment whose state is in {written[0]}:"
        f" it was deleted or made again; {_ANEW}"
    )
