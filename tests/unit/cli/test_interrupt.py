"""Ctrl-C where an exception would not end the command."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import types
from collections.abc import Iterator

import pytest

from slackwater.cli import __main__ as entry
from slackwater.cli.audit import interruptible


class Ended(BaseException):
    """In place of the end of the process."""


HANDLER = entry.Interrupt()


@pytest.fixture(autouse=True)
def _handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def ends(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", ends)
    before = signal.signal(signal.SIGINT, HANDLER)
    yield
    signal.signal(signal.SIGINT, before)


def test_during_an_import_the_program_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a callback of the import system the exception would be ignored."""

    class Finder:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "a_module_that_is_imported":
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with pytest.raises(Ended, match="130"):
        __import__("a_module_that_is_imported")


def test_elsewhere_it_can_clean_up() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_the_entry_point_turns_it_into_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    app = types.ModuleType("slackwater.cli.app")

    def main() -> None:
        signal.raise_signal(signal.SIGINT)

    app.main = main  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slackwater.cli.app", app)
    with pytest.raises(SystemExit, match="130"):
        entry.main()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "the interpreter ends undisturbed"


def test_an_interrupted_audit_does_not_end_with_an_error_of_its_library() -> None:
    level = logging.getLogger("py4j").level

    def call() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ConnectionError("the JVM has gone") from error

    with pytest.raises(KeyboardInterrupt), interruptible():
        call()
    assert signal.getsignal(signal.SIGINT) is HANDLER
    assert logging.getLogger("py4j").level == level


def test_an_error_of_an_audit_that_was_not_interrupted_stays() -> None:
    with pytest.raises(ConnectionError), interruptible():
        raise ConnectionError("the JVM has gone")


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
        ("os.kill(os.getpid(), signal.SIGINT); signal.pause()", entry.INTERRUPTED, False),
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
