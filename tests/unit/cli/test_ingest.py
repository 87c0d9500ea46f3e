"""``slackwater ingest``: the job in the stream's inbox."""

from __future__ import annotations

import gzip
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from slackwater.cli import ingest
from slackwater.cli.app import app
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.stored import to_text
from slackwater.machine.placed_proxies import FILE
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.proxy.sensors import inbox_of, job_from

DEPLOYMENT = """\
apiVersion: slackwater/v1
clock: data
streams:
  lab: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
queries:
  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 1s}
"""

RUN = SimpleNamespace(site=None, deployment="d.yaml")


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
    monkeypatch.setattr(
        ingest, "read_run", lambda _: SimpleNamespace(site=None, deployment="d.yaml")
    )
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
    monkeypatch.setattr(
        ingest, "read_run", lambda _: SimpleNamespace(site=None, deployment="d.yaml")
    )
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
    monkeypatch.setattr(
        ingest, "read_run", lambda _: SimpleNamespace(site=None, deployment="d.yaml")
    )
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
    run = SimpleNamespace(
        site=None, deployment="d.yaml", lives={"proxy/attic": None} if is_running else {}
    )
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
    monkeypatch.setattr(
        ingest, "read_run", lambda _: SimpleNamespace(site=None, deployment="d.yaml")
    )
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


def test_lines_are_counted_where_they_measure_a_file(tmp_path: Path) -> None:
    def lines(text: str, name: str = "a.csv") -> int | None:
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return ingest.count_lines("lab", path)

    assert lines("k,t,x\na,1,2\n") == 2
    assert lines("k,t,x\na,1,2") == 2, "the last one has no end"
    assert lines("k,t,x\na,1,2\n", "a.csv.gz") == 2
    assert lines('{"t": 1}\n{"t": 2}\n', "a.ndjson") == 2
    assert lines('[{"t": 1},\n{"t": 2}]\n', "a.json") is None, "elements are counted"


def test_ingest_says_how_many_lines_there_are_and_how_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT)
    file = tmp_path / "a.csv"
    file.write_text("k,t,x\na,1,2\n")
    monkeypatch.setattr(
        ingest, "read_run", lambda _: SimpleNamespace(site=None, deployment="d.yaml")
    )
    monkeypatch.setattr(ingest, "is_running", lambda _: True)
    ingest.run_ingest(tmp_path, {"lab": file}, tmp_path / "d.yaml", None, False)
    assert capsys.readouterr().out == (
        f"{file} (2 lines) is passed to proxy/lab; `slackwater status` shows how far it is read,"
        " and `slackwater ingest lab --stop` stops it\n"
    )
    (path,) = inbox_of(tmp_path, "lab").glob("*.json")
    assert job_from(path).lines == 2
    stop = ["ingest", "lab", "--stop", "--data-dir", str(tmp_path)]
    stopped = CliRunner().invoke(app, stop)
    assert stopped.stdout == f"{file} is read no further into lab; what has been read stays\n"
    stopped = CliRunner().invoke(app, stop)
    assert stopped.stdout == "no file is being read into lab\n"
    monkeypatch.setattr(ingest, "is_running", lambda _: False)
    with pytest.raises(EnvironmentProblem, match="no deployment runs from"):
        ingest.stop_ingesting(tmp_path, ["lab"])
