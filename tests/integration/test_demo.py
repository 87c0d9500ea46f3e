"""``slackwater demo``, as run by a new user."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from tests.support.halt_witness import Witness
from tests.support.ports import free_port
from tests.support.waiting import TEST_S_MAX

pytestmark = [pytest.mark.slow]


def test_the_demo_shows_windows_turn_tentative_undone_and_exact(tmp_path: Path) -> None:
    web = ("--web", f"127.0.0.1:{free_port()}")
    with Witness(tmp_path) as witness:
        done = subprocess.run(
            [sys.executable, "-m", "slackwater.cli.app", "demo", "--keep", "kept", *web],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=TEST_S_MAX,
        )
    report = orjson.loads((tmp_path / "kept" / "report.json").read_bytes())
    # Otherwise answers may be late, and the output must show this.
    if report["overloaded"] is None and not witness.stood_still:
        assert done.returncode == 0, done.stdout + done.stderr
    for stage in ("Kafka", "proxies", "orderers", "aggregators (Spark)", "roots"):
        assert f" s: {stage}" in done.stdout, "each stage of the start has its line"
    assert f"The page is at http://{web[1]}/ until the demo ends." in done.stdout
    assert "tentative, without room-2" in done.stdout
    assert "undone, exact answers follow" in done.stdout
    assert "exact (corrected)" in done.stdout
    *_, last, _kept = done.stdout.splitlines()
    assert last.endswith("0 lost, 0 doubled, 0 uncorrected, 0 wrong")
