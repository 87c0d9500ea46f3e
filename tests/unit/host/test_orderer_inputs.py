"""The result logs that an orderer reads when the query behind them has been changed (rule-29)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.unit.model.test_deployment import deployment, query, stream

from slackwater.host.orderer import SourceInput, inputs
from slackwater.model.deployment import Deployment, TopicPartitions, TopicSpec
from slackwater.model.names import Names
from slackwater.runtime.service.registry import QueryDefinition

FIRST = deployment(query("s1"), stream("s1", "a"), stream("s2", "a"))
Q = FIRST.queries["q"]
LATER = replace(Q, name="q.g1", sources=("s2",), aggregate=("max", "count", "avg"))
READER = replace(query("q"), name="p")


def read(present: Deployment, registered: Deployment | None) -> list[SourceInput]:
    """What p reads, if its processes have one deployment and were registered with another one."""
    of_q = QueryDefinition("q", 0, 7_200_000, 250_000, Q)
    known: Any = SimpleNamespace(query={"q": of_q}.__getitem__)
    of_p = QueryDefinition("p", 0, 7_200_000, 250_000, READER, deployment=registered)
    return list(inputs(present, READER.sources, known, of_p))


def with_reader(**queries: object) -> Deployment:
    return replace(FIRST, queries={**queries, "p": READER})  # type: ignore[dict-item]


def test_a_reader_keeps_the_columns_that_it_was_registered_with() -> None:
    before = read(with_reader(q=Q), with_reader(q=Q))
    assert [each.name for each in before] == ["q/0", "q/0/tentative"]
    after = read(with_reader(**{"q.g1": LATER}), with_reader(q=Q))
    assert after == before, "a replica that starts again reads what the other one reads"
    of_file = read(with_reader(q=Q), None)
    assert of_file == before


def test_a_reader_that_is_applied_later_reads_the_columns_of_the_later_generation() -> None:
    changed = with_reader(**{"q.g1": LATER})
    (stable, tentative) = read(changed, changed)
    assert stable.results is not None
    assert stable.results.columns == ("a_max", "a_count", "a_avg")
    assert stable.results.generation == 1
    # The topics, the names in state records and the first row are those of the query.
    names = Names()
    assert stable.place(names) == (names.results("q", "stable"), 0)
    assert tentative.place(names) == (names.results("q", "tentative"), 0)
    assert [stable.name, stable.source] == ["q/0", "q"]
    (first, _) = read(with_reader(q=Q), None)
    assert stable.watermark == first.watermark == 7_499_999


def withheld(
    partitions: TopicPartitions, taken_in: dict[str, int], recorded: int = 3
) -> list[bool]:
    """Which logs of s1 are withheld from q, whose definition has these numbers."""
    topic = TopicSpec("readings", partitions=partitions)
    s1 = replace(FIRST.streams["s1"], topic=topic)
    present = replace(FIRST, streams={**FIRST.streams, "s1": s1})
    known: Any = SimpleNamespace(partitions={"s1": recorded}.__getitem__)
    of_q = QueryDefinition("q", 0, 7_200_000, 250_000, Q, partitions=taken_in)
    found = list(inputs(present, ["s1"], known, of_q))
    assert [each.name for each in found] == [f"s1.{p}" for p in range(recorded)]
    return [each.withheld for each in found]


def test_partitions_that_a_fixed_query_was_registered_without_are_withheld() -> None:
    assert withheld("fixed", {"s1": 2}) == [False, False, True]
    assert withheld("fixed", {"s1": 4}) == [False] * 3, "not recorded yet"
    assert withheld("watched", {}) == [False] * 3


def test_a_declaration_that_was_changed_between_two_starts_counts() -> None:
    assert withheld("watched", {"s1": 2}) == [False] * 3
    assert withheld("fixed", {}) == [False] * 3, "it was registered as watched"
