"""In which order the replicas' queries of an added fragment start."""

from __future__ import annotations

import pytest

from slackwater.model.names import OrdererName
from slackwater_spark.deferral import DEFERRED_US_MAX, Deferral

A, B, C = (OrdererName("q", 0, replica) for replica in range(3))
START_US = 10_000_000


@pytest.mark.parametrize(
    ("name", "running", "is_due"),
    [
        (A, (), True),
        (B, (), False),
        (B, ("q.0.a",), True),
        (B, ("q.0.c", "q.1.a", "p.0.a"), False),
        (C, ("q.0.a",), False),
        (C, ("q.0.b",), True),
    ],
    ids=str,
)
def test_a_replica_starts_when_the_one_before_it_runs(
    name: OrdererName, running: tuple[str, ...], is_due: bool
) -> None:
    deferral = Deferral()
    deferral.add(name, START_US)
    assert deferral.due(START_US + 1, running) == ([name] if is_due else [])
    assert len(deferral) == (0 if is_due else 1)
    assert deferral.due(START_US + 2, {"q.0.a", "q.0.b"}) == ([] if is_due else [name])


def test_a_replica_does_not_wait_for_one_that_does_not_start() -> None:
    deferral = Deferral()
    deferral.add(B, START_US)
    deferral.add(B, START_US + 1)
    assert deferral.due(START_US + DEFERRED_US_MAX - 1, ()) == []
    assert deferral.due(START_US + DEFERRED_US_MAX, ()) == [B], "since it was added first"
    assert not deferral


def test_a_fragment_that_is_removed_while_it_waits_does_not_start() -> None:
    deferral = Deferral()
    deferral.add(B, START_US)
    deferral.remove(B)
    deferral.remove(B)
    assert deferral.due(2 * START_US, {"q.0.a"}) == []
