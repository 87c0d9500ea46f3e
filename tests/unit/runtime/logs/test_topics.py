"""The topic list is data; these are properties on which other code relies."""

import socket
import tomllib
from typing import Any

import pytest

from slackwater.codec.paths import schemas_dir
from slackwater.machine.broker_properties import HOST
from slackwater.model.errors import EnvironmentProblem
from slackwater.model.limits import RECORD_BATCH_BYTES_MAX, RECORD_BYTES_MAX
from slackwater.model.names import RESULT_KINDS, UNPREFIXED, Names
from slackwater.runtime.logs import topics, transport
from slackwater.runtime.logs.topics import QueryTopics, TopicLayout, topics_for


def by_name(specs: tuple[TopicLayout, ...]) -> dict[str, TopicLayout]:
    named = {spec.name: spec for spec in specs}
    assert len(named) == len(specs), "a topic is named twice"
    return named


@pytest.fixture
def data() -> dict[str, Any]:
    return tomllib.loads((schemas_dir() / "topics.toml").read_text())


def test_a_query_has_the_logs_of_the_design() -> None:
    specs = by_name(
        topics_for(["room-1", "lab.0"], [QueryTopics("climate", children=3, replicas=2, parts=4)])
    )
    partitions = {name: spec.partitions for name, spec in specs.items()}
    assert partitions == {
        "sw.source.room-1": 1,
        "sw.source.lab.0": 1,
        "sw.quarantine.room-1": 1,
        "sw.quarantine.lab.0": 1,
        "sw.ordered.climate.0": 4,
        "sw.ordered.climate.1": 4,
        "sw.ordered.climate.2": 4,
        "sw.deltas.climate.0": 12,
        "sw.deltas.climate.1": 12,
        "sw.deltas.climate.2": 12,
        "sw.deltas.climate.3": 12,
        "sw.state.climate": 4,
        "sw.panes.climate": 4,
        "sw.results.climate.stable": 4,
        "sw.results.climate.tentative": 4,
        "sw.results.climate.corrections": 4,
        "sw.heartbeats": 1,
        "sw.registry": 1,
    }


def test_the_naming_functions_name_the_topics_of_the_file() -> None:
    names = by_name(topics_for(["s"], [QueryTopics("q", 2, parts=2, merging=True)])).keys()
    named = {Names().source("s"), Names().quarantine("s"), Names().state("q")}
    named |= {Names().ordered("q", child) for child in range(2)}
    named |= {Names().deltas("q", part) for part in range(2)}
    named |= {Names().merged("q", part) for part in range(2)}
    named.add(Names().panes("q"))
    named |= {Names().results("q", kind) for kind in RESULT_KINDS}
    assert named | {Names().heartbeats, Names().registry} == names


def test_every_log_of_a_deltas_topic_has_a_partition_of_its_own() -> None:
    children, replicas = 3, 2
    used = sorted(
        topics.deltas_partition(child, replica, replicas, live=live)
        for child in range(children)
        for replica in range(replicas)
        for live in (False, True)
    )
    spec = by_name(topics_for([], [QueryTopics("q", children, replicas)]))["sw.deltas.q.0"]
    assert used == list(range(spec.partitions))


def test_stable_logs_are_even_and_live_logs_odd() -> None:
    assert [topics.ordered_partition(r, live=line) for r in (0, 1) for line in (False, True)] == [
        *(0, 1),
        *(2, 3),
    ]


def test_logs_whose_offsets_must_be_contiguous_are_never_compacted() -> None:
    specs = topics_for(["s"], [QueryTopics("q")])
    for spec in specs:
        compacted = spec.config["cleanup.policy"] == "compact"
        assert compacted == spec.name.startswith(("sw.state.", "sw.panes.", "sw.registry")), (
            spec.name
        )


def test_every_limit_lets_the_largest_record_pass(data: dict[str, Any]) -> None:
    record = data["limits"]["record_bytes_max"]
    assert record == RECORD_BYTES_MAX == transport.RECORD_BYTES_MAX
    assert topics.piece_bytes_max() * 2 <= record
    for spec in topics_for(["s"], [QueryTopics("q")]):
        if "max.message.bytes" in spec.config:
            assert int(spec.config["max.message.bytes"]) == RECORD_BATCH_BYTES_MAX, spec.name
    clients = data["clients"]
    limits = [
        clients["confluent"]["producer"]["message.max.bytes"],
        clients["confluent"]["consumer"]["max.partition.fetch.bytes"],
        clients["aiokafka"]["producer"]["max_request_size"],
        clients["aiokafka"]["consumer"]["max_partition_fetch_bytes"],
        int(clients["spark"]["sink"]["kafka.max.request.size"]),
        int(clients["spark"]["source"]["kafka.max.partition.fetch.bytes"]),
    ]
    assert min(limits) >= record
    assert max(limits) <= RECORD_BATCH_BYTES_MAX
    fetch = clients["confluent"]["consumer"]
    # Otherwise librdkafka refuses to start.
    assert fetch["receive.message.max.bytes"] >= fetch["fetch.max.bytes"] + 512


def test_client_settings_take_extra_ones_without_changing_the_data() -> None:
    first = topics.confluent_producer("b:1", linger_ms=5)
    assert first["linger.ms"] == 5
    assert first["message.timeout.ms"] == 0
    assert first["bootstrap.servers"] == "b:1"
    assert "linger.ms" not in topics.confluent_producer("b:1")
    assert topics.aiokafka_consumer("b:1", client_id="x")["client_id"] == "x"
    assert topics.spark_options("b:1", "sink")["kafka.bootstrap.servers"] == "b:1"


def test_an_unreachable_broker_is_named() -> None:
    with socket.socket() as unused:
        unused.bind((HOST, 0))
        bootstrap = f"{HOST}:{unused.getsockname()[1]}"
    with pytest.raises(EnvironmentProblem, match=f"no broker answers on {bootstrap}"):
        topics.ensure_topics(bootstrap, topics_for(["s"], []), timeout_s=0.2)


def test_generations_of_a_query_have_results_state_and_alerts_in_common() -> None:
    """What is made for a generation is what its fragments write to and read from."""
    made = {t.name for t in topics_for([], [QueryTopics("q.g1", alerting=True)])}
    names = UNPREFIXED
    own = {names.ordered("q.g1", 0), names.deltas("q.g1", 0), names.panes("q.g1")}
    common = {names.state("q.g1"), names.alerts("q.g1")}
    common |= {names.results("q.g1", kind) for kind in RESULT_KINDS}
    assert made == own | common | {names.heartbeats, names.registry}
    assert "sw.results.q.stable" in made
