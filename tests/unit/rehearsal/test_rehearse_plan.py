"""The plan of a rehearsal: faults, inputs, anchor, end; every error has exit code 2."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slackwater.deployment.parse import load_deployment
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
from slackwater.model.errors import DeploymentError, SlackwaterError, UsageError
from slackwater.rehearsal.plan import RehearsalPlan, make_plan, parse_fault, targets

S = 1_000_000
PROCESSES = (
    "broker",
    "proxy/room-1",
    "proxy/room-2",
    "orderer/climate.0.a",
    "orderer/climate.0.b",
    "aggregator/0",
    "root/climate.0",
)


def stream(name: str, disorder_us: int = 0, topic: TopicSpec | None = None) -> StreamSpec:
    return StreamSpec(
        name,
        KeySpec(value=name),
        TimeSpec(columns=("t",), unit="s"),
        (FieldSpec("x", "x"),),
        disorder_us=disorder_us,
        topic=topic,
    )


def deployment(*sources: StreamSpec, size: int = 4 * S, slide: int = 2 * S) -> Deployment:
    sources = sources or (stream("room-1"), stream("room-2", disorder_us=S))
    query = QuerySpec(
        "climate",
        tuple(s.name for s in sources),
        None,
        None,
        WindowSpec(size, slide),
        ("count",),
        2 * S,
    )
    return Deployment("wall", {s.name: s for s in sources}, {"climate": query})


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    files = {"room-1": "t,x\n101,1\n103,2\n121,9\n", "room-2": "t,x\n102,1\n100.5,4\n99,5\n113,1\n"}
    for name, text in files.items():
        (tmp_path / f"{name}.csv").write_text(text)
    return {name: tmp_path / f"{name}.csv" for name in files}


def plan(
    paths: dict[str, Path],
    spec: Deployment | None = None,
    *,
    faults: Sequence[str] = (),
    duration_us: int | None = None,
    speed: float = 10.0,
) -> RehearsalPlan:
    return make_plan(
        spec or deployment(),
        paths,
        speed=speed,
        duration_us=duration_us,
        faults=faults,
        seed=1,
        processes=PROCESSES,
    )


def test_anchor_end_and_lateness(paths: dict[str, Path]) -> None:
    made = plan(paths)
    assert made.start == 99 * S
    # 121 is in [120, 124), the last of the windows that contain it.
    assert made.end == 124 * S
    assert made.replay_us == 2_200_000
    terms = made.expectations(made.deployment.queries["climate"], 5_000 * S)
    assert terms.first == 96 * S
    assert terms.lateness == S
    assert terms.due(99 * S) == 5_000 * S + 100_000
    assert made.done_us(0) == 2_600_000
    assert sorted(made.inputs["room-2"].late) == [1, 2]


def test_duration_cuts_what_is_sent_and_where_the_boundaries_end(paths: dict[str, Path]) -> None:
    made = plan(paths, duration_us=1_400_000)
    assert [r.stime for r in made.inputs["room-1"].readings] == [101 * S, 103 * S]
    assert made.limit == 113 * S
    assert len(made.inputs["room-2"].readings) == 4, "113 is still sent: exactly at the end"
    assert made.end == 116 * S
    assert made.replay_us == 1_400_000


@pytest.mark.parametrize(
    "text",
    [
        "at=5s silence room-2 for 8s",
        " at=0.5s  kill orderer ",
        "at=100ms pause root/climate.0 for 1m",
        "at=0s kill broker",
        "at=3s stop host/0",
    ],
)
def test_faults_that_are_understood(text: str) -> None:
    assert parse_fault(text).text == text.strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("silence room-2 for 8s", "invalid syntax"),
        ("at=5 silence room-2 for 8s", "not a duration"),
        ("at=5s silence room-2", "needs a duration"),
        ("at=5s silence room-2 for 0s", "duration 0s is 0"),
        ("at=5s kill orderer for 8s", "restarted at once"),
        ("at=5s pause orderer", "needs a duration"),
        ("at=5s stop root for 1s", "a stopped process is restarted at once"),
        ("at=5s drown room-2 for 8s", "unknown fault drown"),
        ("at=5s kill", "invalid syntax"),
    ],
)
def test_faults_that_are_not_understood(text: str, expected: str) -> None:
    with pytest.raises(UsageError, match=expected) as caught:
        parse_fault(text)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("at=1s silence room-9 for 1s", "no stream room-9.*room-1, room-2"),
        ("at=1s kill oderer", "no process oderer"),
        ("at=1s kill orderer/other", "no process orderer/other"),
        ("at=1s pause proxy/room-9 for 1s", "no process proxy/room-9"),
        ("at=1s kill o", "no process o"),
        ("at=1s stop aggregator", "only hosts, orderers and roots.*write kill aggregator"),
        ("at=3s kill root", "replay ends after 2200ms"),
    ],
)
def test_faults_that_cannot_be(paths: dict[str, Path], fault: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        plan(paths, faults=[fault])


def test_faults_come_in_the_order_of_their_time(paths: dict[str, Path]) -> None:
    made = plan(paths, faults=["at=2s kill root", "at=1s silence room-1 for 5s"])
    assert [fault.at_us for fault in made.faults] == [S, 2 * S]


@pytest.mark.parametrize(
    ("name", "means"),
    [
        ("orderer", ["orderer/climate.0.a", "orderer/climate.0.b"]),
        ("orderer/climate", ["orderer/climate.0.a", "orderer/climate.0.b"]),
        ("orderer/climate.0.b", ["orderer/climate.0.b"]),
        ("broker", ["broker"]),
        ("aggregator/0", ["aggregator/0"]),
        ("orderer/climate.0", ["orderer/climate.0.a", "orderer/climate.0.b"]),
        ("orderer/", ["orderer/climate.0.a", "orderer/climate.0.b"]),
        ("proxy/room", []),
        ("orderer/clim", []),
        ("orderer/*", ["orderer/climate.0.a", "orderer/climate.0.b"]),
        ("climate", []),
    ],
)
def test_a_shorter_name_means_all_that_begin_with_its_components(
    name: str, means: list[str]
) -> None:
    assert targets(name, PROCESSES) == means


def test_the_process_that_serves_all_streams_is_meant_before_its_streams() -> None:
    assert targets("proxy", [*PROCESSES, "proxy"]) == ["proxy"]
    assert targets("proxy/*", [*PROCESSES, "proxy"]) == ["proxy"]
    assert targets("proxy/room-2", [*PROCESSES, "proxy"]) == ["proxy/room-2"]


def test_a_part_is_not_meant_by_the_number_that_its_own_begins_with() -> None:
    roots = [f"root/q.{part}.{copy}" for part in range(12) for copy in "ab"]
    assert targets("root/q.1", roots) == ["root/q.1.a", "root/q.1.b"]
    assert targets("root/q", roots) == roots


def test_a_whole_name_means_itself_only() -> None:
    assert targets("proxy/a", ["proxy/a", "proxy/a-2"]) == ["proxy/a"]


def test_a_file_of_which_hardly_a_reading_is_replayed_is_named(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    """Its silence would fail no window, and the rehearsal would agree with everything."""
    assert plan(paths).barely_read() == []
    short = plan(paths, duration_us=350_000).barely_read()
    assert [line.split(":")[0] for line in short] == ["room-1"]
    assert short[0].startswith("room-1: 1 of 3 readings is in the replay, so a failure of it shows")
    (tmp_path / "room-1.csv").write_text("t,x\n101,1\n")
    assert plan(paths).barely_read() == [], "the file has no more"


def refused(paths: dict[str, Path], spec: Deployment | None = None, **options: object) -> str:
    with pytest.raises(SlackwaterError) as caught:
        plan(paths, spec, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    return caught.value.message


def test_inputs_are_checked(paths: dict[str, Path], tmp_path: Path) -> None:
    assert "add --input room-2=FILE" in refused({"room-1": paths["room-1"]})
    assert "no stream garden" in refused(paths | {"garden": paths["room-1"]})
    assert "No such file" in refused(paths | {"room-2": tmp_path / "none.csv"})
    (tmp_path / "empty.csv").write_text("t,x\n")
    empty = {"room-1": tmp_path / "empty.csv", "room-2": tmp_path / "empty.csv"}
    assert "no input has a reading" in refused(empty)
    assert "--speed 0" in refused(paths, speed=0.0)
    fed = deployment(stream("room-1"), stream("room-2", topic=TopicSpec("t")))
    assert "leave out its `topic`, and give a file" in refused(paths, fed)


def test_a_column_that_is_not_there_is_found_before_anything_starts(
    paths: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "other.csv").write_text("time,x\n1,2\n")
    with pytest.raises(DeploymentError, match="no column 't'"):
        plan(paths | {"room-2": tmp_path / "other.csv"})


# Files that do not fit their header.

FILES_YAML = """\
apiVersion: slackwater/v1
clock: data
streams:
  wide: {key: {column: node}, time: {column: ts, unit: s}, fields: [temperature, humidity]}
  dup: {key: {column: node}, time: {column: ts, unit: s}, fields: [power]}
queries:
  qw: {from: [wide], window: {size: 1m}, aggregate: [count, min, max], bound: 2s}
  qd: {from: [dup], window: {size: 1m}, aggregate: [count, sum], bound: 2s}
"""


def files(folder: Path, *, heading: str) -> tuple[Deployment, dict[str, Path]]:
    """Return the deployment and its files: decimal commas without quotes, and this heading."""
    (folder / "files.yaml").write_text(FILES_YAML)
    times = range(1_768_474_800, 1_768_475_100, 10)
    wide = "".join(f"{t},a,21,{i % 10},40,2\n" for i, t in enumerate(times))
    (folder / "wide.csv").write_text(f"ts,node,temperature,humidity\n{wide}")
    (folder / "dup.csv").write_text(heading + "".join(f"{t},a,1,100\n" for t in times))
    paths = {name: folder / f"{name}.csv" for name in ("wide", "dup")}
    return load_deployment(folder / "files.yaml"), paths


def test_two_columns_of_one_name_end_a_rehearsal_before_it_starts(tmp_path: Path) -> None:
    spec, paths = files(tmp_path, heading="ts,node,power,power\n")
    with pytest.raises(
        DeploymentError, match=r"dup\.csv has 2 columns 'power', numbers 3 and 4"
    ) as error:
        plan(paths, spec)
    assert error.value.exit_code == 2


def test_rows_with_more_cells_than_their_header_are_expected_in_quarantine(tmp_path: Path) -> None:
    spec, paths = files(tmp_path, heading="ts,node,power,power_max\n")
    planned = plan(paths, spec)
    assert (planned.inputs["wide"].malformed, planned.inputs["wide"].readings) == (30, [])
    windows, _ = planned.expected()
    assert not windows["qw"]
    assert [(key, figures["power"].count) for (_, key), figures in windows["qd"].items()] == [
        ("a", 6)
    ] * 5


def test_files_without_a_usable_row_name_the_first_malformed_one(tmp_path: Path) -> None:
    spec, paths = files(tmp_path, heading="ts,node,power,power_max\n")
    paths["dup"].write_text("ts,node,power\n")
    with pytest.raises(
        DeploymentError,
        match=r"wide\.csv has 30 malformed lines, .*wide\.csv:2: 6 cells, the header has 4;"
        r" .*dup\.csv has 0 malformed lines",
    ):
        plan(paths, spec)
