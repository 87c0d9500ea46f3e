"""The result logs that an orderer reads when the query behind them has been changed (rule-29)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from tests.unit.model.test_deployment import deployment, query, stream

from slackwater.host.orderer import SourceInput, inputs
from slackwater.model.child_logs import ChildLogs, dealt
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
    return list(inputs(present, of_p.logs_of_children, 0, known, of_p))


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
    known: Any = SimpleNamespace(partitions=lambda *_: recorded)
    of_q = QueryDefinition("q", 0, 7_200_000, 250_000, Q, partitions=taken_in)
    found = list(inputs(present, of_q.logs_of_children, 0, known, of_q))
    assert [each.name for each in found] == [f"s1.{p}" for p in range(recorded)]
    return [each.withheld for each in found]


def test_partitions_that_a_fixed_query_was_registered_without_are_withheld() -> None:
    assert withheld("fixed", {"s1": 2}) == [False, False, True]
    assert withheld("fixed", {"s1": 4}) == [False] * 3, "not recorded yet"
    assert withheld("watched", {}) == [False] * 3


def test_a_declaration_that_was_changed_between_two_starts_counts() -> None:
    assert withheld("watched", {"s1": 2}) == [False] * 3
    assert withheld("fixed", {}) == [False] * 3, "it was registered as watched"


def of_child(logs: ChildLogs, child: int, recorded: int) -> dict[str, tuple[bool, int | None]]:
    """The logs of a child of q over s1, by name: whether it is withheld, and what is coming."""
    s1 = replace(FIRST.streams["s1"], topic=TopicSpec("readings"))
    present = replace(FIRST, streams={"s1": s1})
    asked: list[int] = []

    def partitions(_: str, at_least: int) -> int:
        asked.append(at_least)
        return max(recorded, at_least)

    known: Any = SimpleNamespace(partitions=partitions)
    of_q = QueryDefinition("q", 0, 7_200_000, 250_000, Q)
    found = list(inputs(present, logs, child, known, of_q))
    assert asked == [1 + logs.there("s1").index(child)]
    return {each.name: (each.withheld, each.coming) for each in found}


def test_a_child_reads_its_own_logs_and_knows_which_one_may_come() -> None:
    logs = ChildLogs.of({"s1": (0, 0, 1, 1)}, {"s1": (0, 1)})
    assert of_child(logs, 0, 4) == {"s1.0": (False, 4), "s1.1": (False, 4)}
    assert of_child(logs, 1, 4) == {"s1.2": (False, 5), "s1.3": (False, 5)}
    assert [*of_child(logs, 0, 5)] == ["s1.0", "s1.1", "s1.4"]
    assert of_child(logs, 1, 5) == of_child(logs, 1, 4), "it is not built again"


def test_a_child_waits_until_its_first_log_is_recorded() -> None:
    logs = ChildLogs.of({"s1": (0, 0, 1, 1)}, {"s1": (0, 1)})
    assert [*of_child(logs, 1, 1)] == ["s1.2"]


def test_logs_that_no_child_takes_in_are_withheld_from_the_child_of_the_last_one() -> None:
    logs = ChildLogs.of({"s1": (0, 1, 1, 0)})
    assert of_child(logs, 0, 5) == {
        "s1.0": (False, 5),
        "s1.3": (False, 5),
        "s1.4": (True, 5),
    }
    assert of_child(logs, 1, 5) == {"s1.1": (False, None), "s1.2": (False, None)}


def test_the_parts_of_a_query_that_is_read_are_its_logs() -> None:
    four = replace(Q, parts=4)
    present = replace(FIRST, queries={"q": four, "p": READER})
    of_q = QueryDefinition("q", 0, 7_200_000, 250_000, four)
    known: Any = SimpleNamespace(query={"q": of_q}.__getitem__)
    logs = dealt({"q": 4}, 2, in_order=False)
    found = [each.name for each in inputs(present, logs, 1, known, None)]
    assert found == ["q/2", "q/2/tentative", "q/3", "q/3/tentative"]
