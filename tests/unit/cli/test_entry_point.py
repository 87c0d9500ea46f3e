"""The entry point ends without a traceback at Ctrl-C, whatever becomes of its exception."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slackwater.cli.__main__ import INTERRUPTED

PROGRAM = """
import os, signal, sys, types
def main():
    try:
        {body}
    except KeyboardInterrupt:
        raise TypeError("what code in C makes of it")
app = types.ModuleType("slackwater.cli.app")
app.main = main
sys.modules["slackwater.cli.app"] = app
signal.signal(signal.SIGINT, signal.default_int_handler)
from slackwater.cli.__main__ import main as run
run()
"""


@pytest.mark.parametrize(
    ("body", "code", "is_traced"),
    [
        ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", INTERRUPTED, False),
        ("raise ValueError('a fault')", 1, True),
    ],
)
def test_an_error_that_follows_ctrl_c_is_the_ctrl_c(
    body: str, code: int, *, is_traced: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=body)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert ("Traceback" in done.stderr) is is_traced
