"""Input that crashes its reader: found, quarantined, omitted after a restart; all else is read."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.reader_that_dies import RAISING, WORD, install

from slackwater.formats.dead_letters import DeadLetters, Faults
from slackwater.formats.isolated import tried
from slackwater.model.deployment import FieldSpec, KeySpec, StreamSpec, TimeSpec

ROOT = Path(__file__).parents[3]
LAB = StreamSpec("lab", KeySpec(field="k"), TimeSpec(field="at", unit="us"), (FieldSpec("t", "t"),))
ROOM = StreamSpec("room", KeySpec(column="k"), TimeSpec(("at",), unit="us"), (FieldSpec("t", "t"),))

FAULTS = """
import os, signal, sys
from pathlib import Path
from slackwater.formats.dead_letters import DeadLetters, Faults

faults = Faults.open(Path(sys.argv[1]), "lab")
aside, room = (DeadLetters.open(Path(sys.argv[1]), stream, faults) for stream in ("lab", "room"))
faults.watch()
die = lambda: os.kill(os.getpid(), int(sys.argv[2]))
room.attempt("room:0", 1, 4, lambda: None)
room.attempt("room:0", 5, 9, lambda: aside.attempt("lab:0", 5, 9, die))
"""
READ_BOTH = """
if __name__ == "__main__":  # the child processes, which read this too, need none of it
    import json, sys
    from pathlib import Path
    import numpy as np
    from slackwater.formats.dead_letters import DeadLetters, Faults
    from slackwater.formats.csvfile import CsvFile
    from slackwater.formats.guarded import GuardedReader
    from tests.unit.formats.test_dead_letters import LAB, ROOM, messages

    folder = Path(sys.argv[1])
    faults = Faults.open(folder, "lab")
    aside = DeadLetters.open(folder, "lab", faults)
    faults.watch()
    if sys.argv[2] == "json":
        sent = messages()
        parsed = GuardedReader(LAB, aside).parse("lab:0", np.arange(100, 100 + len(sent)), sent)
        bad = [(b.index, b.reason) for b in parsed.bad]
        print(json.dumps([parsed.stimes.tolist(), parsed.indices.tolist(), bad]))
    else:
        pieces = list(CsvFile(ROOM, folder / "x.csv", 4_000, (aside, "x")).pieces())
        stimes = [s for p in pieces for s in p.arrived.stimes.tolist()]
        bad = [(m.line, m.reason) for p in pieces for m in p.malformed]
        assert [p.arrived.position for p in pieces] == sorted(p.arrived.position for p in pieces)
        print(json.dumps([stimes, sum(p.blank for p in pieces), bad]))
"""
CULPRITS = {700: WORD, 1_903: RAISING}


def messages() -> list[bytes]:
    """Return three thousand messages: one crashes, one raises and one is malformed."""
    sent = [b'{"k":"a","at":%d,"t":1}' % i for i in range(3_000)]
    for at, word in CULPRITS.items():
        sent[at] = b'{"k":"%s","at":%d,"t":1}' % (word, at)
    sent[5] = b"nonsense"
    return sent


def lines() -> list[bytes]:
    """Return the same as a file, with a quoted row over two lines and a blank line."""
    rows = [b"k,at,t", *(b"a,%d,1" % i for i in range(3_000))]
    for at, word in CULPRITS.items():
        rows[at + 1] = word + b",%d,1" % at
    rows[6] = b"a,nonsense,1"
    rows[11] = b'"a\nb",10,1'
    return [*rows, b"", b""]


def run(script: str, *arguments: str, pythonpath: str = "") -> subprocess.CompletedProcess[str]:
    env = os.environ | ({"PYTHONPATH": pythonpath} if pythonpath else {})
    path = Path(arguments[0]) / "script.py"
    path.write_text(script)
    command = [sys.executable, str(path), *arguments]
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def opened(folder: Path, stream: str = "lab", process: str = "lab") -> DeadLetters:
    return DeadLetters.open(folder, stream, Faults.open(folder, process))


def _picky(_: object, items: Sequence[int]) -> int:
    for item in items:
        if item in (0, 1_234, 2_999):
            os.abort()
        if item == 1_235:
            raise ValueError("not this one")
    return sum(items)


def test_every_item_but_the_culprits_is_read_once() -> None:
    found = tried(_picky, None, range(3_000))
    assert [at for at, _ in found.lost] == [0, 1_234, 1_235, 2_999]
    assert "SIGABRT" in found.lost[0][1]
    assert "not this one" in found.lost[2][1]
    read = [i for start, end, _ in found.read for i in range(start, end)]
    assert read == [i for i in range(3_000) if i not in (0, 1_234, 1_235, 2_999)]
    assert sum(result for _, _, result in found.read) == sum(read)


@pytest.mark.parametrize("signum", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
def test_a_place_that_a_fault_ended_is_read_apart_and_no_other(
    tmp_path: Path, signum: signal.Signals
) -> None:
    assert run(FAULTS, str(tmp_path), str(int(signum))).returncode == -signum
    dead_letters = opened(tmp_path)
    assert dead_letters.attempt("lab:0", 9, 12, lambda: 1) is None
    assert dead_letters.attempt("lab:0", 10, 12, lambda: 1) == 1
    assert dead_letters.attempt("lab:1", 5, 9, lambda: 1) == 1


def test_of_several_streams_each_is_suspect_that_was_being_read(tmp_path: Path) -> None:
    """Also if another process serves the stream now, but not if it was not being read."""
    assert run(FAULTS, str(tmp_path), str(int(signal.SIGSEGV))).returncode == -signal.SIGSEGV
    room = opened(tmp_path, "room", "other")
    assert room.attempt("room:0", 4, 4, lambda: 1) == 1
    assert room.attempt("room:0", 5, 5, lambda: 1) is None
    assert opened(tmp_path, "lab").attempt("lab:0", 5, 9, lambda: 1) is None
    assert opened(tmp_path, "lab").attempt("lab:0", 5, 9, lambda: 1) == 1, "the mark is cleared"


def test_a_mark_of_a_process_that_served_one_stream_counts(tmp_path: Path) -> None:
    (tmp_path / "lab.reading").write_text('["lab:0", 5, 9]\n')
    (tmp_path / "lab.fault").write_text("Fatal Python error: Aborted\n")
    assert opened(tmp_path, "lab", "room").attempt("lab:0", 5, 9, lambda: 1) is None


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_a_kill_is_no_fault_of_the_input(tmp_path: Path, signum: signal.Signals) -> None:
    assert run(FAULTS, str(tmp_path), str(int(signum))).returncode == -signum
    assert opened(tmp_path).attempt("lab:0", 5, 9, lambda: 1) == 1


def test_what_is_set_aside_stays_so_within_a_bound(tmp_path: Path) -> None:
    dead_letters = opened(tmp_path)
    for position in range(1_010):
        dead_letters.add("lab:0", position, "a test")
    again = opened(tmp_path)
    assert again.positions("lab:0") == frozenset(range(10, 1_010))
    (tmp_path / "lab.aside.json").write_text("[1")
    assert opened(tmp_path).positions("lab:0") == frozenset()


@pytest.mark.parametrize("kind", ["json", pytest.param("csv", marks=pytest.mark.drill)])
def test_a_reader_that_really_dies_costs_what_it_dies_of(tmp_path: Path, kind: str) -> None:
    """The first run crashes; the second finds the messages; the third omits them."""
    pythonpath = install(tmp_path / "site")
    (tmp_path / "x.csv").write_bytes(b"\n".join(lines()))
    good = [i for i in range(3_000) if i not in (5, *CULPRITS)]
    assert run(READ_BOTH, str(tmp_path), kind, pythonpath=pythonpath).returncode == -signal.SIGABRT
    for _ in range(2):
        done = run(READ_BOTH, str(tmp_path), kind, pythonpath=pythonpath)
        assert done.returncode == 0, done.stderr[-2_000:]
        stimes, other, bad = json.loads(done.stdout)
        assert stimes == good
        wanted: list[Any] = [[5, "malformed"], *([at, "crash"] for at in CULPRITS)]
        if kind == "json":
            assert other == good
            assert bad == wanted
        else:
            assert other == 1
            assert bad == [[7, "malformed"], *([at + 3, "crash"] for at in CULPRITS)]
