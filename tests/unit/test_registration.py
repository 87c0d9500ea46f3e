"""Registration: topics that no broker shows yet, and the start of queries that share children."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.test_layout import query, stream

from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment, TopicSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.primitives.eventclock import DataClock
from slackwater.runtime.local import registration
from slackwater.runtime.local.registration import Registration
from slackwater.runtime.logs.memory import MemoryBroker
from slackwater.runtime.logs.topics import topics_for
from slackwater.runtime.service.registry import Registry


class OtherCluster:
    """Stands for a transport; nothing is asked of it but where its broker is."""

    cluster = bootstrap = "kafka:9092"


def made() -> Registration:
    streams = {"s1": replace(stream("s1"), topic=TopicSpec("readings"))}
    deployment = Deployment("wall", streams, {"q": query("q", "s1")})
    return Registration(cast(Any, OtherCluster()), deployment, Path("d.yaml"))


def test_a_topic_that_was_just_made_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[dict[str, int]] = [{}, {"readings": 3}]
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: shown.pop(0))
    assert made().partitions_of == {"s1": 3}
    assert not shown


def test_one_that_does_not_appear_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {})
    monkeypatch.setattr(registration, "APPEARS_S_MAX", 0.2)
    with pytest.raises(EnvironmentProblem, match=r"topic readings of d\.yaml does not exist on"):
        _ = made().partitions_of


def test_queries_that_share_begin_together_though_data_arrives_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else the children begin elsewhere than one of the roots that read them."""
    broker = MemoryBroker()
    for spec in topics_for([], []):
        broker.create_topic(spec.name, spec.partitions)
    queries = {name: query(name, "s1") for name in ("q", "r")}
    deployment = share(Deployment("data", {"s1": stream("s1")}, queries))
    assert deployment.queries["r"].child_query == "q"
    found = [None, 7_000_000, 5_000_000]  # of q; then a reading arrives, then an older one
    monkeypatch.setattr(registration, "beginning", lambda *of: found.pop(0))
    monkeypatch.setattr(registration, "partition_counts", lambda where, topics: {})
    monkeypatch.setattr(broker, "cluster", None, raising=False)
    wanted = Registration(cast(Any, broker), deployment, Path("d.yaml"))
    assert wanted.register(["q", "r"], DataClock()) == ["q", "r"]
    assert wanted.register(["q", "r"], DataClock()) == []
    begun = Registry(broker).queries()
    assert begun["q"].e0_us == begun["r"].e0_us
