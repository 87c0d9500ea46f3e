"""The run of a rehearsal, on a stage in memory whose root answers from the batch result."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.contracts.transport import no_failure
from tests.support.memory import MemoryBroker, MemoryReader
from tests.unit.histories import Root
from tests.unit.rehearsal.test_rehearse_plan import PROCESSES, deployment

from slackwater.cli.rehearse import summary
from slackwater.codec.results import parse_time
from slackwater.codec.state_records import encode_registry
from slackwater.judge.check import Disturbance
from slackwater.model.errors import CheckFailed, EnvironmentProblem
from slackwater.model.names import RESULT_KINDS, Names
from slackwater.primitives.lateness import Step
from slackwater.rehearsal import run
from slackwater.rehearsal.plan import RehearsalPlan, make_plan
from slackwater.rehearsal.report import RehearsalOutcome, disturbances
from slackwater.rehearsal.run import Quiet, Rehearsal, verify
from slackwater.rehearsal.stage import StageEvent
from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.clock import SystemClock
from slackwater.runtime.service.cpu import CpuLoad, CpuShare
from slackwater.runtime.service.registry_entries import expectation_record

BEGAN_US = 1_700_000_000_000_000
LOOK_US = 10_000
"""Time step of each poll of the rehearsal."""


class MemoryStage:
    """A pipeline whose root has the answers and writes them in bursts of one transaction each.

    Time is virtual, and does not advance until the rehearsal has read all records.
    """

    def __init__(self, plan: RehearsalPlan, steps: Sequence[tuple[str, int]]) -> None:
        self.plan = plan
        self.now_us = BEGAN_US
        self.clock = SystemClock(wall_us=lambda: self.now_us, monotonic_us=lambda: self.now_us)
        self.broker = MemoryBroker(lambda: self.now_us // 1_000)
        self.steps = steps
        self.calls: list[str] = []
        self.phases: list[str] = []
        self.stopped = 0
        self.late_us = 0
        self.busy: list[CpuLoad] = []
        self.spoil: list[dict[str, Any]] = []
        self.looks_until_back: dict[str, int] = {}
        self.dead_letters: dict[str, set[int]] = {}
        self.seen = 0
        self.unseen_until_us = 0
        self._emitted = 0
        self._to_emit: Iterator[tuple[int, list[dict[str, Any]]]] = iter(())
        self._next: tuple[int, list[dict[str, Any]]] | None = None

    @property
    def transport(self) -> Transport:
        return self.broker

    def prepare(self) -> None:
        for kind in RESULT_KINDS:
            self.broker.create_topic(Names().results("climate", kind))

    def ready(self) -> dict[str, bool]:
        """Return what is ready: heartbeats of roots are late on this machine."""
        return {name: not name.startswith("root/") for name in ("broker", *PROCESSES)}

    def learn(self, stream: str, steps: Sequence[Step]) -> None:
        """Return the recorded steps at the end."""
        self.broker.create_topic(Names().registry)
        writer = self.broker.writer(no_failure)
        for record in (expectation_record(stream, step) for step in steps):
            writer.append(Names().registry, 0, encode_registry(record), record.name.encode())

    def begin(self) -> int:
        anchor = self.now_us + 50_000
        self._to_emit = self._answers(anchor)
        self._next = next(self._to_emit, None)
        return anchor

    def _answers(self, anchor: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
        query = self.plan.deployment.queries["climate"]
        read = self.plan.without(self.dead_letters)
        root = Root(self.plan.expectations(query, anchor), read.expected()[0][query.name])
        emitted = 0
        for label, windows in self.steps:
            if label == "tentative":
                root.tentative(windows, ["room-2"])
            else:
                root.stable(windows)
            yield root.now + self.late_us, [*root.records[emitted:], *self.spoil]
            self.spoil = []
            emitted = len(root.records)

    def _goes_on(self) -> None:
        if self.seen < self._emitted and self.now_us >= self.unseen_until_us:
            return
        self.now_us += LOOK_US
        if self._next is None or self._next[0] > self.now_us:
            return
        self.now_us, records = max(self._next[0], self.now_us - LOOK_US), self._next[1]
        with self.broker.transaction() as transaction:
            for record in records:
                kind = record.get("label", record["kind"])
                topic = Names().results("climate", kind if kind in RESULT_KINDS else "corrections")
                value = {k: v for k, v in record.items() if k != "seen_at"}
                transaction.append(topic, 0, orjson.dumps(value))
        self._emitted += len(records)
        self._next = next(self._to_emit, None)

    def kill(self, process: str) -> None:
        self.calls.append(f"kill {process}")

    def stop_part(self, process: str) -> None:
        self.calls.append(f"stop {process}")

    def pause(self, process: str) -> None:
        self.calls.append(f"pause {process}")

    def resume(self, process: str) -> None:
        self.calls.append(f"resume {process}")

    def events(self) -> list[StageEvent]:
        return []

    def loads(self) -> list[CpuLoad]:
        return self.busy

    def check(self) -> None:
        if "kill broker" in self.calls:
            raise EnvironmentProblem("the broker did not come back")
        self.looks_until_back = {who: n - 1 for who, n in self.looks_until_back.items() if n > 1}
        self._goes_on()

    def away(self) -> list[str]:
        return list(self.looks_until_back)

    def quarantine(self) -> dict[str, dict[str, int]]:
        found = {"room-2": {"late": 1}}
        for stream, lines in self.dead_letters.items():
            found[stream] = found.get(stream, {}) | {"crash": len(lines)}
        return found

    def dead_letter_lines(self) -> dict[str, set[int]]:
        return self.dead_letters

    def stop(self) -> None:
        self.stopped += 1


class Onlooker(Quiet):
    """Reports read records to the stage; counts the lines in the file when all must be in it."""

    def __init__(self, stage: MemoryStage, out: Path) -> None:
        self._stage = stage
        self._out = out
        self.lacking: list[int] = []
        self.phases: list[str] = []

    def phase(self, text: str) -> None:
        self.phases.append(text)

    def began(self, plan: RehearsalPlan, anchor_wall: int) -> None:
        self.tick(anchor_wall)

    def saw(self, record: dict[str, Any], seen_at: int) -> None:
        self._stage.seen += 1

    def tick(self, now_us: int) -> None:
        if self._out.is_file():
            lines = self._out.read_bytes().count(b"\n")
            self.lacking.append(1 + self._stage.seen - lines)


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "STEP_S", 0.001)


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
    late_us: int = 0,
    busy: Sequence[CpuLoad] = (),
    learned: Sequence[Step] = (),
    looks_until_back: int = 0,
    dead_letters: Mapping[str, set[int]] | None = None,
    out: Path | None = None,
    unseen_until_us: int = 0,
) -> tuple[RehearsalOutcome, list[dict[str, Any]], MemoryStage]:
    deployed = deployment()
    if learned:
        room = replace(deployed.streams["room-2"], expect_every_us=5_000_000, learns_gaps=True)
        deployed = replace(deployed, streams={**deployed.streams, "room-2": room})
    plan = make_plan(
        deployed,
        inputs,
        speed=20.0,
        duration_us=None,
        faults=faults,
        seed=3,
        processes=PROCESSES,
    )
    stage = MemoryStage(plan, steps)
    stage.spoil, stage.late_us, stage.busy = list(spoil), late_us, list(busy)
    stage.learn("room-2", learned)
    if looks_until_back:
        stage.looks_until_back = {"root/climate.0": looks_until_back}
    stage.dead_letters = dict(dead_letters or {})
    stage.unseen_until_us = unseen_until_us
    out = out or inputs["room-1"].parent / "results.jsonl"
    outcome = play(stage, out, wait_us)
    return outcome, [orjson.loads(line) for line in out.read_bytes().splitlines()], stage


def play(stage: MemoryStage, out: Path, wait_us: int) -> RehearsalOutcome:
    onlooker = Onlooker(stage, out)
    try:
        outcome = Rehearsal(stage.plan, stage, PROCESSES, out, wait_us, onlooker, stage.clock).run()
    finally:
        assert stage.stopped
    assert set(onlooker.lacking) <= {0}, "records read are in the file at once"
    stage.phases = onlooker.phases
    return outcome


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
    first_phase, *ready, replaying, comparing, stopping = stage.phases
    assert first_phase == "starting Kafka, Spark and the processes"
    assert [replaying, comparing, stopping] == ["replaying", "comparing", "stopping"]
    stages = [line.partition(": ")[2].split()[0].strip(",") for line in ready]
    assert sorted(stages) == ["Kafka", "aggregators", "orderers", "proxies", "roots", "the"]
    assert [e["event"] for e in outcome.report["events"]] == ["silenced", "heard"]


def test_normal_times_count_from_what_was_learned_on_the_way(inputs: dict[str, Path]) -> None:
    learned = [Step(103_000_000, 30_000_000)]
    outcome, lines, _ = rehearse(inputs, [("stable", 6)], learned=learned)
    assert outcome.ok
    assert lines[0]["lateness"] == {"climate": 6.0}
    assert lines[-1] == {
        "kind": "lateness",
        "query": "climate",
        "event": "1970-01-01T00:01:43.000000Z",
        "lateness": 31.0,
    }
    # Room 2 is due 25 s later than before at twenty times the speed, but its answers are not.
    assert outcome.report["queries"]["climate"]["latency_ms"]["all"]["p50"] < -500
    assert summary(outcome)[0].endswith("(negative: before it, since the inputs had ended)")


def test_a_line_that_ended_its_reader_is_no_reading(inputs: dict[str, Path]) -> None:
    """Line 5 is the reading of 103 s, which would be in two windows."""
    dead_letters = {"room-1": {5}}
    learned = [Step(103_000_000, 30_000_000)]
    outcome, lines, _ = rehearse(
        inputs,
        [("stable", 2), ("tentative", 2), ("stable", 4)],
        dead_letters=dead_letters,
        learned=learned,
    )
    assert outcome.findings == []
    assert outcome.ok
    counts = {
        line["window_start"][17:19]: line["fields"]["x"]["count"]
        for line in lines
        if line["kind"] == "stable" and line["key"] == "room-1"
    }
    assert (counts["40"], counts["42"]) == (3, 3), "of four seconds each"
    assert outcome.report["quarantine"]["room-1"] == {"crash": 1}
    assert outcome.report["queries"]["climate"]["n_tentative"] == 2


def test_a_line_that_is_only_missing_is_lost(inputs: dict[str, Path]) -> None:
    """Line 5 is quarantined; the results also lack line 6."""

    class Forgetful(MemoryStage):
        def dead_letter_lines(self) -> dict[str, set[int]]:
            return {"room-1": {5}}

    plan = make_plan(
        deployment(), inputs, speed=20.0, duration_us=None, faults=(), seed=3, processes=PROCESSES
    )
    stage = Forgetful(plan, [("stable", 6)])
    stage.dead_letters = {"room-1": {5, 6}}
    outcome = play(stage, inputs["room-1"].parent / "results.jsonl", 300_000)
    assert outcome.report["queries"]["climate"]["wrong"] > 0
    assert not outcome.ok


def test_results_that_cannot_be_read_again_cannot_be_judged_without_a_line(
    inputs: dict[str, Path],
) -> None:
    with pytest.raises(EnvironmentProblem, match="--out /dev/null: lines went to quarantine"):
        rehearse(inputs, [("stable", 6)], dead_letters={"room-1": {5}}, out=Path("/dev/null"))


def test_not_stable_in_time_names_what_is_missing(inputs: dict[str, Path]) -> None:
    outcome, _, _ = rehearse(inputs, [("stable", 3), ("tentative", 1)])
    assert not outcome.ok
    assert outcome.report["queries"]["climate"]["uncorrected"] == 1
    assert outcome.report["queries"]["climate"]["lost"] == 3
    with pytest.raises(CheckFailed, match="no stable answer from climate part 0 window 1970"):
        verify(outcome)


def test_it_goes_on_until_whoever_was_killed_works_again(inputs: dict[str, Path]) -> None:
    outcome, _, stage = rehearse(inputs, [("stable", 6)], wait_us=20_000_000, looks_until_back=50)
    assert outcome.findings == []
    assert stage.away() == []


def test_a_process_that_does_not_recover_in_time_is_named(inputs: dict[str, Path]) -> None:
    outcome, _, _ = rehearse(inputs, [("stable", 6)], looks_until_back=1_000_000)
    assert outcome.findings == ["incomplete after 0.3 s more: root/climate.0 has not recovered"]
    assert not outcome.ok


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


def test_answers_beyond_the_bound_fail_a_rehearsal_whose_figures_all_agree(
    inputs: dict[str, Path],
) -> None:
    """X is 2 s: all is exact, nothing is undone, and the last windows are 2.6 s late."""
    outcome, _, _ = rehearse(inputs, [("stable", 6)], wait_us=9_000_000, late_us=2_600_000)
    climate = outcome.report["queries"]["climate"]
    assert [climate[what] for what in ("lost", "doubled", "uncorrected", "wrong")] == [0] * 4
    assert not outcome.ok
    assert climate["beyond_bound"] == climate["seen_beyond_bound"] == 6
    assert climate["bound_of"] == "climate"
    late = [window["late_ms"] for window in climate["late_windows"]]
    assert late == sorted(late, reverse=True)
    # A broker's times are whole milliseconds, truncated and not rounded.
    assert all(2_599 < ms < 9_000 for ms in late), "of their own normal times"
    with pytest.raises(CheckFailed, match="6 of 6 windows of climate were first answered beyond"):
        verify(outcome)
    worst = climate["late_windows"][0]["window_start"]
    assert outcome.findings[1].startswith(f"late: climate window {worst} was first answered")
    assert outcome.findings[1].endswith("after its normal time; 2.250 s were allowed")
    assert outcome.report["overloaded"] is None


def test_answers_that_could_be_read_in_time_are_in_time_however_late_they_were_seen(
    inputs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader receives nothing until the last window is 3 s past its normal time; X is 2 s."""
    until_us = BEGAN_US + 3_500_000
    poll = MemoryReader.poll

    def held(self: MemoryReader, records_max: int = 1000, timeout_s: float = 0.0) -> Any:
        if self._broker._now_ms() * 1_000 >= until_us:
            return poll(self, records_max, timeout_s)
        time.sleep(0.001)
        return []

    monkeypatch.setattr(MemoryReader, "poll", held)
    outcome, _, _ = rehearse(inputs, [("stable", 6)], wait_us=9_000_000, unseen_until_us=until_us)
    climate = outcome.report["queries"]["climate"]
    assert climate["latency_ms"]["all"]["max"] > 2_250
    assert climate["seen_beyond_bound"] > 0
    assert climate["beyond_bound"] == 0
    assert outcome.ok
    assert climate["judged_ms"]["max"] <= 2_000, "the printed figure is the one that is judged"
    line = summary(outcome)[0]
    assert f"max {climate['judged_ms']['max']:.0f} ms after their normal time" in line
    assert f"0 late ({climate['seen_beyond_bound']} more were committed in time" in line


def test_want_of_cpu_is_a_finding_of_its_own(inputs: dict[str, Path]) -> None:
    now = BEGAN_US
    share = CpuShare(used=0.98, waited=0.0)
    busy = [
        CpuLoad(now + second * 1_000_000, 1.0, 0.99, 0.0, {"orderer/climate.0.a": share})
        for second in range(10)
    ]
    outcome, _, _ = rehearse(
        inputs, [("stable", 6)], wait_us=9_000_000, late_us=2_600_000, busy=busy
    )
    assert outcome.findings[0].startswith("overloaded: orderer/climate.0.a used 98% of a core, for")
    assert outcome.report["overloaded"]["processes"][0]["process"] == "orderer/climate.0.a"
    assert outcome.report["overloaded"]["machine_busy"] == 0.99


def test_a_busy_machine_that_keeps_its_bounds_is_no_finding(inputs: dict[str, Path]) -> None:
    now = BEGAN_US
    busy = [
        CpuLoad(now + 500_000 * n, 1.0, 1.0, 0.0, {"root/q.0": CpuShare(1.0, 1.0)})
        for n in range(9)
    ]
    outcome, _, _ = rehearse(inputs, [("stable", 6)], busy=busy)
    assert outcome.findings == []
    assert outcome.report["overloaded"] is None


def test_a_fault_lasts_until_the_process_works_again() -> None:
    events = [
        StageEvent(10, "root/climate.0", "killed"),
        StageEvent(12, "root/climate.0", "restarted"),
        StageEvent(30, "root/climate.0", "ready"),
        StageEvent(40, "broker", "killed"),
        StageEvent(60, "broker", "ready"),
        StageEvent(70, "proxy/room-1", "silenced"),
    ]
    assert disturbances(events) == [
        Disturbance(10, 30, "root/climate.0"),
        Disturbance(40, 60, "broker"),
        Disturbance(70, 2**62, "proxy/room-1", silent=True),
    ]


def test_a_process_that_ends_by_itself_is_away_until_it_is_ready_again() -> None:
    events = [
        StageEvent(10, "root/q.0", "ended by SIGSEGV"),
        StageEvent(11, "root/q.0", "started, pid 7"),
        StageEvent(12, "root/q.0", "ended with code 1"),
        StageEvent(30, "root/q.0", "ready"),
        StageEvent(35, "root/q.0", "paused"),
        StageEvent(40, "root/q.0", "resumed"),
    ]
    assert disturbances(events) == [
        Disturbance(10, 30, "root/q.0"),
        Disturbance(35, 40, "root/q.0"),
    ]
