"""The run of a rehearsal, on a stage in memory whose root answers from the batch result."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.histories import Root
from tests.unit.test_rehearse_plan import PROCESSES, deployment

from slackwater.cli.rehearse.plan import Plan, make_plan
from slackwater.cli.rehearse.report import Outcome, disturbances
from slackwater.cli.rehearse.run import Quiet, Rehearsal, verify
from slackwater.cli.rehearse.stage import Event
from slackwater.codec.results import parse_time
from slackwater.model.errors import CheckFailed, EnvironmentProblem
from slackwater.runtime.clock import SystemClock
from slackwater.runtime.memory import MemoryBroker
from slackwater.runtime.topics import RESULT_KINDS, results_topic
from slackwater.runtime.transport import Transport


class MemoryStage:
    """A pipeline whose root knows the answers and says them in bursts of one transaction each."""

    def __init__(self, plan: Plan, steps: Sequence[tuple[str, int]]) -> None:
        self.plan = plan
        self.broker = MemoryBroker()
        self.clock = SystemClock()
        self.steps = steps
        self.calls: list[str] = []
        self.stopped = 0
        self.spoil: list[dict[str, Any]] = []
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    @property
    def transport(self) -> Transport:
        return self.broker

    def prepare(self) -> None:
        for kind in RESULT_KINDS:
            self.broker.create_topic(results_topic("climate", kind))

    def begin(self) -> int:
        anchor = self.clock.now_us() + 50_000
        self._thread = threading.Thread(target=self._answer, args=(anchor,), daemon=True)
        self._thread.start()
        return anchor

    def _answer(self, anchor: int) -> None:
        query = self.plan.deployment.queries["climate"]
        root = Root(self.plan.terms(query, anchor), self.plan.expected()[0][query.name])
        said = 0
        for label, windows in self.steps:
            if label == "tentative":
                root.tentative(windows, ["room-2"])
            else:
                root.stable(windows)
            self._stop.wait(max(0, root.now - self.clock.now_us()) / 1e6)
            with self.broker.transaction() as transaction:
                for record in [*root.records[said:], *self.spoil]:
                    kind = record.get("label", record["kind"])
                    topic = results_topic(
                        "climate", kind if kind in RESULT_KINDS else "corrections"
                    )
                    value = {k: v for k, v in record.items() if k != "seen_at"}
                    transaction.append(topic, 0, orjson.dumps(value))
            self.spoil = []
            said = len(root.records)

    def kill(self, process: str) -> None:
        self.calls.append(f"kill {process}")

    def pause(self, process: str) -> None:
        self.calls.append(f"pause {process}")

    def resume(self, process: str) -> None:
        self.calls.append(f"resume {process}")

    def events(self) -> list[Event]:
        return []

    def check(self) -> None:
        if "kill broker" in self.calls:
            raise EnvironmentProblem("the broker did not come back")

    def quarantine(self) -> dict[str, dict[str, int]]:
        return {"room-2": {"late": 1}}

    def stop(self) -> None:
        self.stopped += 1
        self._stop.set()


class Onlooker(Quiet):
    """Counts the lines in the file whenever all that has been seen is to be in it."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seen = 0
        self.lacking: list[int] = []

    def began(self, plan: Plan, anchor_wall: int) -> None:
        self.tick(anchor_wall)

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        self._seen += 1

    def tick(self, now_us: int) -> None:
        self.lacking.append(1 + self._seen - self._out.read_bytes().count(b"\n"))


@pytest.fixture
def inputs(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "1.csv").write_text("t,x\n" + "".join(f"{t},1\n" for t in range(100, 110)))
    (tmp_path / "2.csv").write_text("t,x\n" + "".join(f"{t},2\n" for t in (100, 104, 101, 109)))
    return {"room-1": tmp_path / "1.csv", "room-2": tmp_path / "2.csv"}


def rehearse(
    inputs: dict[str, Path],
    steps: Sequence[tuple[str, int]],
    *,
    faults: Sequence[str] = (),
    wait_us: int = 300_000,
    spoil: Sequence[dict[str, Any]] = (),
    watcher: Quiet | None = None,
) -> tuple[Outcome, list[dict[str, Any]], MemoryStage]:
    plan = make_plan(
        deployment(),
        inputs,
        speed=20.0,
        duration_us=None,
        faults=faults,
        seed=3,
        processes=PROCESSES,
    )
    stage = MemoryStage(plan, steps)
    stage.spoil = list(spoil)
    out = inputs["room-1"].parent / "results.jsonl"
    try:
        outcome = Rehearsal(plan, stage, PROCESSES, out, wait_us, watcher).run()
    finally:
        assert stage.stopped
    return outcome, [orjson.loads(line) for line in out.read_bytes().splitlines()], stage


def test_agreed(inputs: dict[str, Path]) -> None:
    faults = ["at=100ms silence room-2 for 100ms", "at=200ms pause orderer for 50ms"]
    outcome, lines, stage = rehearse(
        inputs, [("stable", 2), ("tentative", 2), ("stable", 4)], faults=faults
    )
    assert outcome.findings == []
    assert outcome.ok
    verify(outcome)
    assert lines[0]["kind"] == "start"
    assert lines[0] | {"wall": ""} == {
        "kind": "start",
        "wall": "",
        "event": "1970-01-01T00:01:40.000000Z",
        "speed": 20.0,
        "disorder": {"room-1": 0.0, "room-2": 1.0},
        "lateness": {"climate": 1.0},
        "bound": {"climate": 2.0},
    }
    assert [line["seq"] for line in lines[1:]] == list(range(len(lines) - 1))
    assert all("seen_at" in line for line in lines[1:])
    climate = outcome.report["queries"]["climate"]
    assert (climate["windows"], climate["n_tentative"], climate["undone"]) == (6, 2, 2)
    first: dict[str, float] = {}
    for line in lines:
        if line["kind"] == "boundary" and line["windows"] == 1:
            latency_us = parse_time(line["seen_at"]) - parse_time(line["due_at"])
            first.setdefault(line["window_start"], latency_us / 1e3)
    assert climate["proc_new_ms"] == pytest.approx(max(first.values()))
    usual = climate["latency_ms"]["clean"]["p50"]
    assert climate["delay_new_ms"] == pytest.approx(climate["proc_new_ms"] - usual)
    assert outcome.report["seed"] == 3
    assert sorted(stage.calls[:2]) == ["pause orderer/climate.0.a", "pause orderer/climate.0.b"]
    assert len(stage.calls) == 4
    assert [e["event"] for e in outcome.report["events"]] == ["silenced", "heard"]


def test_what_has_been_seen_is_in_the_file_at_once(inputs: dict[str, Path]) -> None:
    onlooker = Onlooker(inputs["room-1"].parent / "results.jsonl")
    rehearse(inputs, [("stable", 3), ("stable", 3)], watcher=onlooker)
    assert set(onlooker.lacking) == {0}


def test_not_stable_in_time_names_what_is_missing(inputs: dict[str, Path]) -> None:
    outcome, _, _ = rehearse(inputs, [("stable", 3), ("tentative", 1)])
    assert not outcome.ok
    assert outcome.report["queries"]["climate"]["uncorrected"] == 1
    assert outcome.report["queries"]["climate"]["lost"] == 3
    with pytest.raises(CheckFailed, match="no stable answer from climate part 0 window 1970"):
        verify(outcome)


def test_a_record_that_is_there_twice_fails_and_is_not_hidden(inputs: dict[str, Path]) -> None:
    spoil = [{"query": "climate", "part": 0, "seq": 0, "kind": "rec_done", "epoch": 1,
              "emitted_at": "1970-01-01T00:01:40.000000Z"}]  # fmt: skip
    outcome, lines, _ = rehearse(inputs, [("stable", 6)], spoil=spoil)
    assert outcome.report["queries"]["climate"]["doubled"] == 1
    assert any("out of order" in finding for finding in outcome.findings)
    assert sum(line.get("kind") == "rec_done" for line in lines) == 1, "nothing is hidden"


def test_a_stage_that_gives_up_ends_the_run_and_is_stopped(inputs: dict[str, Path]) -> None:
    with pytest.raises(EnvironmentProblem, match="did not come back"):
        rehearse(inputs, [("stable", 1)], faults=["at=0s kill broker"])


def test_a_fault_lasts_until_the_process_works_again() -> None:
    events = [
        Event(10, "root/climate.0", "killed"),
        Event(12, "root/climate.0", "restarted"),
        Event(30, "root/climate.0", "ready"),
        Event(40, "broker", "killed"),
        Event(60, "broker", "ready"),
        Event(70, "proxy/room-1", "silenced"),
    ]
    found = disturbances(events)
    assert [(d.start, d.end, d.broker) for d in found[:2]] == [(10, 30, False), (40, 60, True)]
    assert found[2].end > 10**18
