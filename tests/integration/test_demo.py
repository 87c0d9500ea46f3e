"""``slackwater demo``, as a newcomer runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(420)]


def test_the_demo_shows_windows_turn_tentative_undone_and_exact(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "slackwater.cli.app", "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tentative, without room-2" in done.stdout
    assert "undone, exact answers follow" in done.stdout
    assert "exact (corrected)" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert last.endswith("0 lost, 0 doubled, 0 uncorrected, 0 wrong")
