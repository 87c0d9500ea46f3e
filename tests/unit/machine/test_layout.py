"""The processes and topics of a deployment."""

import dataclasses
from pathlib import Path

from slackwater.deployment.fragments import placed, process_names, sources_of
from slackwater.machine.layout import (
    Launch,
    fragment_specs,
    proxy_specs,
)
from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    TopicSpec,
    WindowSpec,
)
from slackwater.registration.topics import topic_specs


def stream(name: str, topic: TopicSpec | None = None) -> StreamSpec:
    return StreamSpec(
        name=name,
        key=KeySpec(column="node"),
        time=TimeSpec(columns=("ts",), unit="ms"),
        fields=(FieldSpec("temperature", "temperature"),),
        topic=topic,
    )


def query(
    name: str, *sources: str, children: int = 1, replicas: int = 2, parts: int = 1
) -> QuerySpec:
    return QuerySpec(
        name=name,
        sources=sources,
        where=None,
        select=None,
        window=WindowSpec(1_000_000, 1_000_000),
        aggregate=("count",),
        bound_us=2_000_000,
        children=children,
        replicas=replicas,
        parts=parts,
    )


DEPLOYMENT = Deployment(
    "wall",
    {"room-1": stream("room-1"), "lab": stream("lab", TopicSpec("lab-readings"))},
    {
        "climate": query("climate", "room-1", "lab", children=2, parts=2),
        "quick": query("quick", "room-1", replicas=1),
    },
)
LAUNCH = Launch(
    Path("/d.yaml"),
    "127.0.0.1:9092",
    Path("/data"),
    proxy_options=("--input", "room-1=a.csv"),
    python="python",
)


def test_a_name_for_each_stream_fragment_and_part_and_processes_that_run_many() -> None:
    assert process_names(DEPLOYMENT) == (
        "broker",
        "proxy/room-1",
        "proxy/lab",
        "orderer/climate.0.a",
        "orderer/climate.0.b",
        "orderer/climate.1.a",
        "orderer/climate.1.b",
        "orderer/quick.0.a",
        "aggregator/0",
        "aggregator/1",
        "root/climate.0",
        "root/climate.1",
        "root/quick.0",
    )
    started = [*proxy_specs(DEPLOYMENT, LAUNCH), *fragment_specs(DEPLOYMENT, LAUNCH)]
    served = [name for spec in started for name in spec.parts or (spec.name,)]
    assert sorted(served) == sorted(process_names(DEPLOYMENT, broker=False))


def test_r19_two_replicas_of_a_child_never_share_an_aggregator() -> None:
    commands = {spec.name: spec.command for spec in fragment_specs(DEPLOYMENT, LAUNCH)}

    def fragments(name: str) -> list[str]:
        command = commands[name]
        return command[command.index("--fragments") + 1].split(",")

    assert fragments("aggregator/0") == ["climate.0.a", "climate.1.a", "quick.0.a"]
    assert fragments("aggregator/1") == ["climate.0.b", "climate.1.b"]


def test_r21_a_query_without_a_window_needs_no_aggregator_and_no_deltas() -> None:
    plain = dataclasses.replace(query("plain", "room-1", parts=2), window=None, aggregate=())
    alone = Deployment("wall", DEPLOYMENT.streams, {"plain": plain})
    names = process_names(alone)
    assert "orderer/plain.0.b" in names
    assert "root/plain.1" in names
    assert not [name for name in names if name.startswith("aggregator")]
    topics = {spec.name: spec.partitions for spec in topic_specs(alone, {"lab": 1})}
    assert topics["sw.ordered.plain.0"] == 4
    assert topics["sw.results.plain.stable"] == 2
    assert not [name for name in topics if name.startswith("sw.deltas")]
    both = Deployment("wall", DEPLOYMENT.streams, {**DEPLOYMENT.queries, "plain": plain})
    placed = [spec.command for spec in fragment_specs(both, LAUNCH) if "aggregator" in spec.name]
    assert len(placed) == 2
    assert not any("plain" in word for command in placed for word in command)


def test_r19_two_replicas_of_a_child_never_share_a_host_and_roots_are_spread() -> None:
    rest = {spec.name: spec.parts for spec in fragment_specs(DEPLOYMENT, LAUNCH)}
    assert [*placed("host", DEPLOYMENT)] == ["host/0", "host/1"]
    assert rest["host/0"] == (
        "orderer/climate.0.a",
        "orderer/climate.1.a",
        "orderer/quick.0.a",
        "root/climate.0",
        "root/quick.0",
    )
    assert rest["host/1"] == ("orderer/climate.0.b", "orderer/climate.1.b", "root/climate.1")


def test_one_query_more_is_no_process_more() -> None:
    many = {f"q{i}": query(f"q{i}", "room-1", children=2, parts=3) for i in range(20)}
    specs = fragment_specs(Deployment("wall", DEPLOYMENT.streams, many), LAUNCH)
    assert [spec.name for spec in specs] == ["aggregator/0", "aggregator/1", "host/0", "host/1"]
    roots = [sum(part.startswith("root/") for part in spec.parts) for spec in specs[2:]]
    assert roots == [30, 30]


def test_command_lines() -> None:
    common = ("--deployment", "/d.yaml", "--bootstrap", "127.0.0.1:9092", "--data-dir", "/data")
    (proxy,) = proxy_specs(DEPLOYMENT, LAUNCH)
    assert proxy.name == "proxy"
    assert proxy.command == (
        "python", "-m", "slackwater.proxy", "room-1", "lab", *common, "--commands",
        "--input", "room-1=a.csv",
    )  # fmt: skip
    rest = {spec.name: spec for spec in fragment_specs(DEPLOYMENT, LAUNCH)}
    assert rest["host/1"].command == (
        "python", "-m", "slackwater.host", "1", *common,
        "--fragments", "orderer/climate.0.b,orderer/climate.1.b,root/climate.1", "--commands",
    )  # fmt: skip
    assert rest["aggregator/1"].command[2:4] == ("slackwater_spark.app", "1")
    first = min(spec.stop_order for spec in rest.values())
    assert proxy.stop_order < first, "the proxy stops first"


def test_a_stream_with_three_proxies_adds_two_processes_that_serve_it_alone() -> None:
    """Each process gets the options of its streams, and those without a stream."""
    lab, room = (DEPLOYMENT.streams[name] for name in ("lab", "room-1"))
    shared = dataclasses.replace(lab, topic=TopicSpec("lab", proxies=3))
    both = Deployment("wall", {"room-1": room, "lab": shared}, DEPLOYMENT.queries)
    options = ("--input", "room-1=a.csv", "--silence", "lab=5:8", "--end-at", "9")
    launch = dataclasses.replace(LAUNCH, proxy_options=options)
    specs = {spec.name: spec for spec in proxy_specs(both, launch)}
    assert {name: spec.parts for name, spec in specs.items()} == {
        "proxy": ("proxy/room-1", "proxy/lab"),
        "proxy/1": ("proxy/lab.1",),
        "proxy/2": ("proxy/lab.2",),
    }
    assert specs["proxy"].command[-6:] == options
    assert specs["proxy/2"].command[3] == "lab.2"
    assert specs["proxy/2"].command[-5:] == ("--commands", "--silence", "lab=5:8", "--end-at", "9")
    started = [*specs.values(), *fragment_specs(both, launch)]
    served = [name for spec in started for name in spec.parts or (spec.name,)]
    assert sorted(served) == sorted(process_names(both, broker=False))


def test_topics_a_source_log_for_each_partition_and_one_quarantine_for_the_stream() -> None:
    assert sources_of(DEPLOYMENT, {"lab": 3}) == {
        "room-1": ("room-1",),
        "lab": ("lab.0", "lab.1", "lab.2"),
    }
    partitions = {spec.name: spec.partitions for spec in topic_specs(DEPLOYMENT, {"lab": 3})}
    assert partitions == {
        "sw.source.room-1": 1,
        "sw.source.lab.0": 1,
        "sw.source.lab.1": 1,
        "sw.source.lab.2": 1,
        "sw.quarantine.room-1": 1,
        "sw.quarantine.lab": 1,
        "sw.ordered.climate.0": 4,
        "sw.ordered.climate.1": 4,
        "sw.ordered.quick.0": 2,
        "sw.deltas.climate.0": 8,
        "sw.deltas.climate.1": 8,
        "sw.deltas.quick.0": 2,
        "sw.state.climate": 2,
        "sw.panes.climate": 2,
        "sw.panes.quick": 1,
        "sw.state.quick": 1,
        "sw.results.climate.stable": 2,
        "sw.results.climate.tentative": 2,
        "sw.results.climate.corrections": 2,
        "sw.results.quick.stable": 1,
        "sw.results.quick.tentative": 1,
        "sw.results.quick.corrections": 1,
        "sw.heartbeats": 1,
        "sw.registry": 1,
    }
