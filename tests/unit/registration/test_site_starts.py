"""trace-73, trace-83: a site starts a query where the centre does, or behind its panes there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker
from tests.support.uplinks import pieces_of
from tests.unit.deployment.test_sites import FILE, parsed

from slackwater.codec.pane_records import encode_merged
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.model.limits import NEVER
from slackwater.primitives.eventclock import WallClock
from slackwater.registration import site_starts, starts
from slackwater.registration.registration import Registration
from slackwater.registration.site_starts import StartTimes, start_behind
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import NoAnswerError
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.registry import QueryDefinition, Registry

CENTRE = "kafka.centre:9092"
MERGED = "sw.merged.q.0"
WINDOW_US = 10_000_000


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
        self.centre.create_topic(MERGED, partitions=3)
        monkeypatch.setattr(site_starts, "KafkaTransport", self._reached)
        monkeypatch.setattr(site_starts, "partition_counts", self._partitions)
        monkeypatch.setattr(starts, "await_first_readings", lambda *_: None)

    def _partitions(self, _: object, topics: set[str]) -> dict[str, int]:
        if self.is_cut:
            raise NoAnswerError("no answer")
        return dict.fromkeys(topics, 1)

    def _reached(self, cluster: Cluster, _: object) -> MemoryBroker:
        assert cluster.bootstrap == CENTRE
        return self.centre

    def arrive(self, *ends_us: int) -> None:
        """Panes of north, each up to one of these times, are in the centre's log."""
        for end in ends_us:
            (record,) = pieces_of(end - WINDOW_US, end, 5)
            self.centre.writer(no_failure).append(MERGED, 0, encode_merged(record))

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


# trace-83: a site whose Kafka has been lost with its disk.


def test_a_site_of_which_the_centre_has_panes_begins_behind_them(
    places: Places, caplog: pytest.LogCaptureFixture
) -> None:
    """A mutant begins at the centre's start: what had been lost would be counted as never sent."""
    (centre,) = places.define(parsed(), places.centre)
    ends = [centre.e0_us + WINDOW_US, centre.e0_us + 2 * WINDOW_US]
    places.arrive(*ends)
    (site,) = places.define(parsed(site="north"), places.site)
    assert site.e0_us == ends[-1]
    accepted_us = max(At().now_us() + 60_000_000, ends[-1])  # ``ahead``
    assert site.lost_until_us is not None
    assert site.lost_until_us % WINDOW_US == 0
    assert accepted_us < site.lost_until_us <= accepted_us + WINDOW_US
    assert "from site north, whose Kafka has none: it has been lost" in caplog.text
    (stored,) = Registry(cast(Any, places.site)).queries().values()
    assert stored == site


def test_a_first_start_has_lost_nothing(places: Places) -> None:
    places.define(parsed(), places.centre)
    (site,) = places.define(parsed(site="north"), places.site)
    assert site.lost_until_us is None
    assert "lost_until_us" not in site.to_json(), "earlier versions read it"


def test_a_site_of_which_the_centre_had_panes_begins_at_its_start(places: Places) -> None:
    """They are deleted, so how far they went is not known."""
    (centre,) = places.define(parsed(), places.centre)
    places.arrive(centre.e0_us + WINDOW_US)
    places.centre.delete_records({(MERGED, 0): 1})
    (site,) = places.define(parsed(site="north"), places.site)
    assert site.e0_us == centre.e0_us
    assert site.lost_until_us is not None


def test_it_begins_where_the_first_of_its_logs_ends_and_says_what_is_lost() -> None:
    start_us, w_us = 600_000_000, 1_000_000
    centre = QueryDefinition("q", 0, start_us, w_us, parsed().queries["q"])

    def begun(*arrived_s: int | None) -> StartTimes:
        at = [of if of in (None, NEVER) else start_us + of * 1_000_000 for of in arrived_s]
        return start_behind(at, centre, start_us + 45_000_000)

    lost_until_us = start_us + 50_000_000
    assert begun(None, None) == StartTimes(start_us, w_us), "a first start"
    assert begun(30, 20) == StartTimes(start_us + 20_000_000, w_us, lost_until_us)
    assert begun(30, None) == StartTimes(start_us, w_us, lost_until_us)
    assert begun(30, NEVER) == StartTimes(start_us, w_us, lost_until_us), "its panes are deleted"
