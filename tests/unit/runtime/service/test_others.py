"""The positions of other queries' orderers, as they are read from their state records."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from tests.support.memory import MemoryBroker
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec.state_records import encode_orderer_state
from slackwater.model.deployment import QuerySpec, WindowSpec
from slackwater.model.names import own_name
from slackwater.model.records import OrdererState, SourcePosition, StreamPositions
from slackwater.runtime.logs.transport import NoAnswerError
from slackwater.runtime.service import others
from slackwater.runtime.service.others import read_other_orderers
from slackwater.runtime.service.registry import QueryDefinition, QueryState, Registry
from slackwater.runtime.service.state import read_orderer_states

S = 1_000_000


@pytest.fixture(name="broker")
def _broker() -> MemoryBroker:
    made = MemoryBroker()
    made.create_topic("sw.registry")
    return made


def registered(
    broker: MemoryBroker, name: str, *sources: str, state: QueryState = "running"
) -> None:
    """Register a query, and create its topic of state records."""
    spec = QuerySpec(name, sources, None, None, WindowSpec(S, S), ("count",), bound_us=2 * S)
    Registry(broker).publish_queries(QueryDefinition(name, 0, 0, S // 4, spec, state=state))
    if "." not in name:
        broker.create_topic(f"sw.state.{name}")


def saved(broker: MemoryBroker, fragment: str, frontiers: Iterable[int]) -> None:
    """Write state records of an orderer, one after the other."""
    writer = broker.writer(pytest.fail)
    query = own_name(fragment).partition(".")[0]
    for frontier in frontiers:
        at = SourcePosition(frontier, frontier, 0, frontier)
        streams = (StreamPositions("lab.0", at, at, at),)
        state = OrdererState(fragment, frontier, -1, frontier, 0, 0, streams)
        writer.append(f"sw.state.{query}", 0, encode_orderer_state(state), fragment.encode())
    writer.await_delivered(WAIT_S_MAX)


def found(broker: MemoryBroker, *logs: str, frontier_max: int = 100) -> dict[str, int]:
    states = read_other_orderers(broker, logs or ("lab.0",), frontier_max, timeout_s=WAIT_S_MAX)
    return {state.fragment: state.frontier for state in states}


def test_of_each_orderer_the_newest_record_below_the_frontier_is_read(broker: MemoryBroker) -> None:
    registered(broker, "climate", "lab", "room")
    saved(broker, "orderer/climate.0.a", [10, 90, 110, 120])
    saved(broker, "orderer/climate.0.b", [20])
    saved(broker, "orderer/climate.g1.0.a", [100, 130])
    saved(broker, "orderer/climate.1.a", [101])
    assert found(broker) == {
        "orderer/climate.0.a": 90,
        "orderer/climate.0.b": 20,
        "orderer/climate.g1.0.a": 100,
    }


def test_only_queries_that_read_a_stream_and_are_not_deleted_are_asked(
    broker: MemoryBroker,
) -> None:
    states: dict[str, QueryState] = {"gone": "deleted", "held": "paused"}
    for name, source in (("one", "lab"), ("gone", "lab"), ("away", "room"), ("held", "lab")):
        registered(broker, name, source, state=states.get(name, "running"))
        saved(broker, f"orderer/{name}.0.a", [50])
    assert found(broker).keys() == {"orderer/one.0.a", "orderer/held.0.a"}
    assert found(broker, "room").keys() == {"orderer/away.0.a"}
    assert found(broker, "hall") == {}


def test_what_cannot_be_read_is_left_out(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        registered(broker, name, "lab")
        saved(broker, f"orderer/{name}.0.a", [50])

    def refused(
        transport: MemoryBroker, query: str, frontier_max: int, *, timeout_s: float
    ) -> list[OrdererState]:
        if query == "one":
            raise NoAnswerError("its partition has no leader")
        return read_orderer_states(transport, query, frontier_max, timeout_s=timeout_s)

    monkeypatch.setattr(others, "read_orderer_states", refused)
    assert found(broker).keys() == {"orderer/two.0.a"}


def test_reading_ends_in_time(broker: MemoryBroker) -> None:
    registered(broker, "one", "lab")
    saved(broker, "orderer/one.0.a", [50])
    assert read_other_orderers(broker, ["lab.0"], 100, timeout_s=0.0) == []
