"""trace-73: a query starts at a site where it starts at the centre, at a pane's edge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.memory import MemoryBroker
from tests.unit.deployment.test_sites import FILE, parsed

from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.primitives.eventclock import WallClock
from slackwater.registration import starts
from slackwater.registration.registration import Registration
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import NoAnswerError
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry

CENTRE = "kafka.centre:9092"


class At(SystemClock):
    """A clock that stands."""

    def now_us(self) -> int:
        return 1_000_000_000_000_000 + 3_456_789


class Places:
    """The centre's Kafka and the site's, in memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.centre, self.site = MemoryBroker(), MemoryBroker()
        self.is_cut = False
        for broker in (self.centre, self.site):
            cast(Any, broker).cluster, cast(Any, broker).bootstrap = broker, "memory:1"
            broker.create_topic("sw.registry")
        monkeypatch.setattr(starts, "KafkaTransport", self._reached)
        monkeypatch.setattr(starts, "partition_counts", self._partitions)
        monkeypatch.setattr(starts, "await_first_readings", lambda *_: None)

    def _partitions(self, _: object, topics: set[str]) -> dict[str, int]:
        if self.is_cut:
            raise NoAnswerError("no answer")
        return dict.fromkeys(topics, 1)

    def _reached(self, cluster: Cluster, _: object) -> MemoryBroker:
        assert cluster.bootstrap == CENTRE
        return self.centre

    def define(self, deployment: Deployment, broker: MemoryBroker) -> list[QueryDefinition]:
        """Register q, as a node does."""
        for name in deployment.streams:
            log = f"sw.source.{name}"
            if (log, 0) not in broker._logs:
                broker.create_topic(log)
        registration = Registration(cast(Any, broker), deployment, Path("f.yaml"), clock=At())
        registration._partitions_of = {"c": 1}
        found = registration.define({"q": "beginning"}, WallClock())
        Registry(cast(Any, broker)).publish_queries(*found)
        return found


@pytest.fixture(name="places")
def _places(monkeypatch: pytest.MonkeyPatch) -> Places:
    return Places(monkeypatch)


def test_the_centre_starts_at_an_edge_and_the_site_with_it() -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        _have_one_start(Places(monkeypatch))


def _have_one_start(places: Places) -> None:
    (centre,) = places.define(parsed(), places.centre)
    assert centre.e0_us % 10_000_000 == 0, "windows of 10 s"
    assert 0 <= centre.e0_us - (At().now_us() - 5_000_000) < 10_000_000, "lateness is 5 s"
    (site,) = places.define(parsed(site="north"), places.site)
    assert (site.e0_us, site.w_us) == (centre.e0_us, centre.w_us)


def test_a_site_waits_for_the_centre_and_says_so(places: Places) -> None:
    with pytest.raises(EnvironmentProblem, match=f"when the centre has registered it: {CENTRE}"):
        places.define(parsed(site="north"), places.site)
    places.define(parsed(), places.centre)
    places.is_cut = True
    with pytest.raises(EnvironmentProblem, match="does not answer"):
        places.define(parsed(site="north"), places.site)
    places.is_cut = False
    assert places.define(parsed(site="north"), places.site)


def test_credentials_that_cannot_be_read_are_an_error_and_not_waited_for(
    places: Places, tmp_path: Path
) -> None:
    places.define(parsed(), places.centre)
    missing = tmp_path / "link.properties"
    text = FILE.replace('"kafka.centre:9092"', f'"kafka.centre:9092", kafka_config: {missing}')
    with pytest.raises(UsageError, match=r"link\.properties"):
        places.define(parsed(text, site="north"), places.site)
    assert parsed(text).queries, "the centre does not read it"


def test_a_site_with_another_definition_is_not_registered(places: Places) -> None:
    places.define(parsed(), places.centre)
    north = parsed(site="north")
    other = replace(north, queries={"q": replace(north.queries["q"], where="x > 1")})
    with pytest.raises(EnvironmentProblem, match="another one at the centre: where differ"):
        places.define(other, places.site)


def test_the_centre_may_move(places: Places) -> None:
    """A site starts again with a file that has the centre's new address, without the link."""
    places.define(parsed(), places.centre)
    places.define(parsed(site="north"), places.site)
    moved = parsed(FILE.replace("kafka.centre", "kafka.moved"), "north")
    registration = Registration(cast(Any, places.site), moved, Path("f.yaml"), clock=At())
    assert registration.missing() == []
    other = replace(moved, queries={"q": replace(moved.queries["q"], where="x > 1")})
    registration = Registration(cast(Any, places.site), other, Path("f.yaml"), clock=At())
    with pytest.raises(DeploymentError, match="another definition"):
        registration.missing()
