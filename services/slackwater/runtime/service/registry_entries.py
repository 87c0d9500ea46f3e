"""Entries of the registry that are not definitions: what is recorded while a deployment runs.

Also the checks of what types do not express in a definition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from slackwater.deployment.windows import why_no_window
from slackwater.model.deployment import Deployment
from slackwater.model.names import base_of, is_query_name
from slackwater.model.records import RegistryRecord
from slackwater.primitives.keyparts import KEY_HASHES
from slackwater.primitives.lateness import LEARNING, Step

if TYPE_CHECKING:
    from slackwater.runtime.service.registry import QueryDefinition

EXPECT_EVERY: Final = "expect_every/"
PARTITIONS: Final = "partitions/"
TOPIC: Final = "topic/"
BEGIN: Final = "begin/"
EVENT_US_MAX: Final = 2**61
"""Event times and widths of a definition lie below it, so that sums of two fit 64 bits."""
PARTITIONS_MAX: Final = 200_000
"""The largest number of partitions of a topic."""
COUNT_MAX: Final = 65_536
MERGERS_MAX: Final = 26
"""Copies have letters in names."""
"""The largest number of children, replicas or parts that a definition may have."""
TOPIC_ID_CHARS_MAX: Final = 22
"""The length of a topic's id: sixteen bytes in base 64."""

Learned = Mapping[str, tuple[Step, ...]]
"""Recorded steps of the streams with ``expect_every: auto`` (rule-15)."""


def expectation_record(stream: str, step: Step) -> RegistryRecord:
    """The entry that records a step; its name has the whole step, so no other step replaces it."""
    name = f"{EXPECT_EVERY}{stream}/{step.from_us}/{step.expect_every_us}"
    return RegistryRecord(name, json.dumps({"stream": stream, **asdict(step)}, sort_keys=True))


def expectation(record: RegistryRecord, definition: dict[str, Any]) -> tuple[str, Step]:
    """Return a step and its stream; ``ValueError`` for any record that is not one."""
    match definition:
        case {"stream": str(stream), "from_us": int(from_us), "expect_every_us": int(us)}:
            step = Step(from_us, us)
            in_range = abs(from_us) < EVENT_US_MAX and 0 < us <= LEARNING.most_us
            if in_range and expectation_record(stream, step).name == record.name:
                return stream, step
    raise ValueError("not a step of a stream's expect_every")


def begin(record: RegistryRecord, definition: dict[str, Any]) -> int:
    """Return the begin of a query, us of wall time; ``ValueError`` for any other record."""
    match definition:
        case {"query": str(query), "begin_us": int(us)}:
            in_range = 0 < us < EVENT_US_MAX and not isinstance(us, bool)
            if in_range and BEGIN + query == record.name:
                return us
    raise ValueError("not the begin of a query")


def partitions(record: RegistryRecord, definition: dict[str, Any]) -> int:
    """Return the number of a stream's source logs; ``ValueError`` for any other record."""
    match definition:
        case {"stream": str(stream), "partitions": int(number)}:
            in_range = 0 < number <= PARTITIONS_MAX and not isinstance(number, bool)
            if in_range and PARTITIONS + stream == record.name:
                return number
    raise ValueError("not the number of a stream's source logs")


def topic_id(record: RegistryRecord, definition: dict[str, Any]) -> str:
    """Return the recorded id of a topic; ``ValueError`` for any record that is not one."""
    match definition:
        case {"topic": str(topic), "id": str(id_)}:
            if 0 < len(id_) <= TOPIC_ID_CHARS_MAX and TOPIC + topic == record.name:
                return id_
    raise ValueError("not the id of a topic")


PARSERS: Final[Mapping[str, Callable[[RegistryRecord, dict[str, Any]], object]]] = {
    EXPECT_EVERY: expectation,
    PARTITIONS: partitions,
    TOPIC: topic_id,
    BEGIN: begin,
}
"""By the prefix of an entry's name: returns its value, or raises ``ValueError``."""


def check_ranges(query: QueryDefinition) -> None:
    """Check ranges that types do not express.

    Raises:
        ValueError: a value that no deployment file can have.
    """
    spec, window = query.spec, query.spec.window
    times = (spec.bound_us, spec.margin_us, query.generation, query.deadline_us or 0)
    if query.name != spec.name or not spec.sources or not is_query_name(spec.child_query):
        raise ValueError("the names are not those of a query")
    if not (abs(query.e0_us) < EVENT_US_MAX and 0 < query.w_us < EVENT_US_MAX):
        raise ValueError(f"start time {query.e0_us} us or width {query.w_us} us is out of range")
    for each in (*spec.cut_windows, *([] if window is None else [window])):
        if (reason := why_no_window(each)) is not None:
            raise ValueError(reason)
    if not abs(query.lost_until_us or 0) < EVENT_US_MAX:
        raise ValueError(f"what is lost until {query.lost_until_us} us is out of range")
    if not all(0 <= time < EVENT_US_MAX for time in times):
        raise ValueError("a time or the generation is out of range")
    counts = (spec.children, spec.replicas, spec.parts)
    if not all(0 < n <= COUNT_MAX for n in counts) or spec.copies not in (1, 2):
        raise ValueError("children, replicas, parts or copies are out of range")
    if not 0 <= spec.mergers <= (0 if window is None else MERGERS_MAX):
        raise ValueError("mergers are out of range")
    if not all(0 < n <= PARTITIONS_MAX for n in query.partitions.values()):
        raise ValueError("a number of partitions is out of range")
    if query.child_logs is not None:
        query.child_logs.check(spec.sources, spec.children)
    if query.key_hash is not None and (window is not None or query.key_hash not in KEY_HASHES):
        raise ValueError(f"the keys are not divided by {query.key_hash!r}")
    if query.deployment is not None:
        check_stands_alone(query.name, query.deployment)


def check_stands_alone(query: str, deployment: Deployment) -> None:
    """Check that a deployment has the query, and all that its queries read; else ``ValueError``."""
    known = deployment.streams.keys() | deployment.queries.keys()
    known |= {base_of(name) for name in deployment.queries}  # a changed query is read by its name
    named = all(name == each.name for name, each in deployment.queries.items())
    named &= all(name == each.name for name, each in deployment.streams.items())
    read = {source for each in deployment.queries.values() for source in each.sources}
    if query not in deployment.queries or not named or not read <= known:
        raise ValueError("its deployment does not have all that it reads")
