"""``slackwater ingest``: the job in the stream's inbox."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from slackwater.cli import ingest
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.stored import to_text
from slackwater.machine.placed_proxies import FILE
from slackwater.model.errors import DeploymentError, UsageError
from slackwater.proxy.sensors import inbox_of, job_from

DEPLOYMENT = """\
apiVersion: slackwater/v1
clock: data
streams:
  lab: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
queries:
  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 1s}
"""


@pytest.mark.parametrize(
    ("speed", "as_now", "pace"),
    [(None, False, None), (None, True, 1.0), (60.0, False, 60.0), (60.0, True, 60.0)],
)
def test_readings_are_paced_with_a_speed_or_as_now_only(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    speed: float | None,
    as_now: bool,
    pace: float | None,
) -> None:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT)
    (tmp_path / "a.csv").write_text("k,t,x\na,1,2\n")
    monkeypatch.setattr(ingest, "read_run", lambda _: SimpleNamespace(deployment="d.yaml"))
    monkeypatch.setattr(ingest, "is_running", lambda _: True)
    ingest.run_ingest(
        tmp_path, {"lab": tmp_path / "a.csv"}, tmp_path / "d.yaml", speed, as_now=as_now
    )
    (path,) = inbox_of(tmp_path, "lab").glob("*.json")
    assert job_from(path).pace == pace


def test_files_of_json_are_checked_and_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT.replace("column", "field"))
    (tmp_path / "a.ndjson").write_text('{"k": "a", "t": 1, "x": 2}\n')
    (tmp_path / "b.json").write_text('[{"k": "a", "t": 1, "x": 2}')
    monkeypatch.setattr(ingest, "read_run", lambda _: SimpleNamespace(deployment="d.yaml"))
    monkeypatch.setattr(ingest, "is_running", lambda _: True)

    def run(name: str) -> None:
        ingest.run_ingest(tmp_path, {"lab": tmp_path / name}, tmp_path / "d.yaml", None, False)

    run("a.ndjson")
    assert len(list(inbox_of(tmp_path, "lab").glob("*.json"))) == 1
    with pytest.raises(DeploymentError, match="its array does not end, after element 0"):
        run("b.json")
    (tmp_path / "d.yaml").write_text(
        DEPLOYMENT.replace("lab: {", "lab: {http: {}, sporadic: true, ")
    )
    with pytest.raises(UsageError, match=r"curl --data-binary @FILE .*/streams/lab"):
        run("a.ndjson")


def test_a_file_does_not_run_ahead_of_the_wall_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT.replace("clock: data", "clock: wall"))
    monkeypatch.setattr(ingest, "read_run", lambda _: SimpleNamespace(deployment="d.yaml"))
    monkeypatch.setattr(ingest, "is_running", lambda _: True)
    with pytest.raises(UsageError, match=r"--speed 60: .* ahead"):
        ingest.run_ingest(
            tmp_path, {"lab": tmp_path / "a.csv"}, tmp_path / "d.yaml", 60, as_now=True
        )


@pytest.mark.parametrize("is_running", [True, False])
def test_a_stream_that_a_query_has_added_is_known_while_its_proxy_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_running: bool
) -> None:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT)
    (tmp_path / "a.csv").write_text("k,t,x\na,1,2\n")
    (tmp_path / "later.yaml").write_text(DEPLOYMENT.replace("lab", "attic"))
    (tmp_path / FILE).write_text(to_text(load_deployment(tmp_path / "later.yaml")))
    run = SimpleNamespace(deployment="d.yaml", lives={"proxy/attic": None} if is_running else {})
    monkeypatch.setattr(ingest, "read_run", lambda _: run)
    monkeypatch.setattr(ingest, "is_running", lambda _: True)

    def submit() -> None:
        ingest.run_ingest(
            tmp_path, {"attic": tmp_path / "a.csv"}, tmp_path / "d.yaml", None, as_now=False
        )

    if not is_running:
        with pytest.raises(UsageError, match="there is no stream attic, only lab"):
            submit()
        return
    submit()
    assert len([*inbox_of(tmp_path, "attic").glob("*.json")]) == 1


def test_files_that_are_shifted_together_keep_their_distance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.yaml").write_text(
        DEPLOYMENT.replace(
            "queries:",
            "  den: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}\nqueries:",
        ).replace("clock: data", "clock: wall")
    )
    (tmp_path / "a.csv").write_text("k,t,x\na,107,2\n")
    (tmp_path / "b.csv").write_text("k,t,x\na,100,2\na,101,2\n")
    monkeypatch.setattr(ingest, "read_run", lambda _: SimpleNamespace(deployment="d.yaml"))
    monkeypatch.setattr(ingest, "is_running", lambda _: True)
    files = {"lab": tmp_path / "a.csv", "den": tmp_path / "b.csv"}
    ingest.run_ingest(tmp_path, files, tmp_path / "d.yaml", None, as_now=True)
    found = {
        job_from(path).shared
        for stream in files
        for path in inbox_of(tmp_path, stream).glob("*.json")
    }
    (shared,) = found
    assert shared is not None
    assert shared.event_us == 100_000_000
    assert shared.wall_us > 1_700_000_000_000_000
