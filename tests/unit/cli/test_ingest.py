"""``slackwater ingest``: the job in the stream's inbox."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from slackwater.cli import ingest
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.stored import to_text
from slackwater.model.errors import UsageError
from slackwater.proxy.sensors import inbox_of, job_from
from slackwater.runtime.local.placed_proxies import FILE

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
        tmp_path, "lab", tmp_path / "a.csv", tmp_path / "d.yaml", speed, as_now=as_now
    )
    (path,) = inbox_of(tmp_path, "lab").glob("*.json")
    assert job_from(path).pace == pace


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
            tmp_path, "attic", tmp_path / "a.csv", tmp_path / "d.yaml", None, as_now=False
        )

    if not is_running:
        with pytest.raises(UsageError, match="there is no stream attic, only lab"):
            submit()
        return
    submit()
    assert len([*inbox_of(tmp_path, "attic").glob("*.json")]) == 1
