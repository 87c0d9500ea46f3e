"""What a registration does with a topic that no broker shows yet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.unit.test_layout import query, stream

from slackwater.model.deployment import Deployment, TopicSpec
from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.local import registration
from slackwater.runtime.local.registration import Registration


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
