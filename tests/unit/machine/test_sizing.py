"""A deployment's estimated needs: the sum follows the layout, and the advice is effective."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slackwater.cli.plan import needs, warn_of
from slackwater.deployment.parse import load_deployment
from slackwater.machine import costs
from slackwater.machine.plan import Machine, PlannedLoad, ResourcePlan, advice, plan
from slackwater.model.deployment import Deployment
from slackwater.model.kinds import KINDS, PROCESSES

LARGE = Machine(cores=64, memory_mb=256_000, disk_free_bytes=1e15)


def deployment(folder: Path, queries: int = 1, **options: object) -> Deployment:
    """Return queries that share no children, over four streams, with two replicas by default."""
    lines = ["apiVersion: slackwater/v1", "streams:"]
    streams = [f"s{n}" for n in range(4)]
    stream = "{key: {column: k}, time: {column: t, unit: us}, fields: [v]}"
    lines += [f"  {name}: {stream}" for name in streams]
    lines.append("queries:")
    emitted = {"bound": "2s", "replicas": 2} | options
    rest = ", ".join(f"{name}: {value}" for name, value in emitted.items())
    window = "window: {size: 1s}, aggregate: [count]"
    query = f"from: [{', '.join(streams)}], {window}, {rest}"
    lines += [f"  q{n}: {{where: v > {n}, {query}}}" for n in range(queries)]
    path = folder / "deployment.yaml"
    path.write_text("\n".join(lines))
    return load_deployment(path)


def of(found: ResourcePlan, kind: str) -> list[str]:
    return [process.name for process in found.processes if process.name.startswith(kind)]


def test_the_processes_are_those_of_the_layout(tmp_path: Path) -> None:
    found = plan(deployment(tmp_path, queries=3), PlannedLoad())
    assert of(found, "broker") == ["broker"]
    assert of(found, "proxy") == ["proxy"]
    assert of(found, "aggregator") == ["aggregator/0", "aggregator/1"]
    fragments = {process.name: process.fragments for process in found.processes}
    assert fragments["proxy"] == 4
    assert fragments["aggregator/0"] == 3
    assert not of(plan(deployment(tmp_path), PlannedLoad(), own_broker=False), "broker")


def test_one_query_more_needs_more_of_everything(tmp_path: Path) -> None:
    one, two = (plan(deployment(tmp_path, queries=n), PlannedLoad()) for n in (1, 2))
    assert one.memory_mb < two.memory_mb
    assert one.cores < two.cores
    assert one.topics < two.topics
    assert one.partitions < two.partitions
    assert one.disk_bytes_a_day < two.disk_bytes_a_day < two.disk_bytes_max


def test_more_readings_need_cpu_and_disk_and_no_memory(tmp_path: Path) -> None:
    made = deployment(tmp_path)
    few, many = plan(made, PlannedLoad(per_s=0)), plan(made, PlannedLoad(per_s=10_000))
    assert few.memory_mb == many.memory_mb
    read = 4 * 10_000
    each = sum(KINDS[kind].cost.us_a_reading for kind in ("orderer", "aggregator"))
    assert many.cores - few.cores >= 2 * read * each / 1e6, "each of two replicas reads them all"
    a_day = read * 86_400 * (costs.READING_BYTES + costs.FIELD_BYTES)
    assert many.disk_bytes_a_day - few.disk_bytes_a_day == pytest.approx(a_day)


@pytest.mark.parametrize(("shape", "logs"), [({}, 2), ({"parts": 3}, 6), ({"children": 2}, 4)])
def test_the_broker_has_a_log_of_deltas_for_each_replica_of_each_child_and_part(
    tmp_path: Path, shape: dict[str, int], logs: int
) -> None:
    def broker(of: Deployment) -> float:
        processes = plan(of, PlannedLoad(per_s=0)).processes
        return next(process.cores for process in processes if process.name == "broker")

    made = deployment(tmp_path, **shape)
    ordered = 2 * 2 * shape.get("children", 1)
    base = PROCESSES["broker"].cost.cores
    assert broker(made) == pytest.approx(base + costs.BROKER_A_LOG * (4 + ordered + logs))
    rows = {name: replace(query, window=None) for name, query in made.queries.items()}
    no_deltas = base + costs.BROKER_A_LOG * (4 + ordered)
    assert broker(replace(made, queries=rows)) == pytest.approx(no_deltas)


def test_keys_need_memory_where_they_are_numbered(tmp_path: Path) -> None:
    """A million keys in four parts: an orderer numbers all, each root a quarter (bench.keys)."""
    made = deployment(tmp_path, replicas=1, parts=4, copies=1)
    few, many = (plan(made, PlannedLoad(keys=keys)) for keys in (0, 1_000_000))
    more = {
        a.name: b.memory_mb - a.memory_mb
        for a, b in zip(few.processes, many.processes, strict=True)
    }
    assert sum(more.values()) == pytest.approx(more["host/0"])
    assert 500 < more["host/0"] < 800
    sliding = replace(made, queries={
        name: replace(query, window=replace(query.window, size_us=10 * query.window.slide_us))
        for name, query in made.queries.items() if query.window is not None
    })  # fmt: skip
    assert plan(sliding, PlannedLoad(keys=1_000_000)).memory_mb > many.memory_mb + 200


def test_what_fits_needs_no_advice(tmp_path: Path) -> None:
    made = deployment(tmp_path)
    assert advice(plan(made, PlannedLoad()), made, PlannedLoad(), LARGE) == []


def reported(made: Deployment, machine: Machine, load: PlannedLoad | None = None) -> str:
    load = load or PlannedLoad()
    return "\n".join(advice(plan(made, load), made, load, machine))


def test_advice_names_what_is_short_and_what_helps(tmp_path: Path) -> None:
    made = deployment(tmp_path)
    assert "replicas: 1" in reported(made, Machine(64, 1_500, 1e15))
    assert "memory" in reported(made, Machine(64, 1_500, 1e15))
    busy = reported(deployment(tmp_path, queries=30), Machine(2, 256_000, 1e15))
    assert "CPU" in busy
    assert "bound" not in busy
    hasty = deployment(tmp_path, queries=30, bound="500ms")
    assert "`bound` below 1 s" in reported(hasty, Machine(2, 256_000, 1e15))
    assert "full after" in reported(made, Machine(64, 256_000, 1e9))


def test_advice_does_not_give_up_what_is_not_there(tmp_path: Path) -> None:
    made = deployment(tmp_path, replicas=1)
    assert "replicas" not in reported(made, Machine(1, 500, 1e15))


def test_what_one_replica_saves_does_not_depend_on_whose_broker_it_is(tmp_path: Path) -> None:
    """The plan with one replica had a broker that the other lacked: it saved 300 MB less."""
    made, small = deployment(tmp_path), Machine(64, 500, 1e15)
    ours, theirs = (plan(made, PlannedLoad(), own_broker=own) for own in (True, False))
    saved = [advice(found, made, PlannedLoad(), small)[1] for found in (ours, theirs)]
    assert "replicas: 1" in saved[0]
    assert saved[0] == saved[1]


def test_a_child_that_gets_too_much_is_to_be_shared(tmp_path: Path) -> None:
    made = deployment(tmp_path)
    assert "`children: 2`" in reported(made, LARGE, PlannedLoad(per_s=400_000))
    assert reported(deployment(tmp_path, children=4), LARGE, PlannedLoad(per_s=400_000)) == ""


def test_the_disk_of_a_directory_that_may_not_be_searched_is_its_parent_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`up` refuses such a directory with a sentence, but a traceback was printed."""
    exists = Path.exists

    def searched(path: Path) -> bool:
        if path.is_relative_to(tmp_path / "locked" / "data"):
            raise PermissionError(13, "Permission denied", str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", searched)
    assert Machine.this(tmp_path / "locked" / "data").disk_free_bytes > 0


def test_up_warns_by_the_same_sum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Machine, "this", lambda _: Machine(64, 1_000, 1e15))
    warn_of(deployment(tmp_path), tmp_path, own_broker=True)
    assert "warning: memory:" in capsys.readouterr().err
    monkeypatch.setattr(Machine, "this", lambda _: replace(LARGE, disk_free_bytes=1e9))
    warn_of(deployment(tmp_path), tmp_path, own_broker=True)
    warned = capsys.readouterr().err
    _, lacks, _ = needs(deployment(tmp_path), PlannedLoad(), tmp_path)
    assert [f"warning: {line}" for line in lacks] == warned.splitlines()[:-1]
    assert "warning: disk: topics grow to" in warned
    assert warned.endswith(
        "warning: this is for 100 readings/s of each stream, 100 keys; `slackwater plan` computes"
        " it for others\n"
    )
    # The topics of another broker take no disk here.
    warn_of(deployment(tmp_path), tmp_path, own_broker=False)
    assert capsys.readouterr().err == ""
