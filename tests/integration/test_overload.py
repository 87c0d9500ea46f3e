"""A rehearsal on an overloaded machine: it fails with the reason; nothing is wrong or lost.

Processes that only compute take nearly all of every core for some seconds of the replay. They end
by themselves, since the process that started them gets no core meanwhile either. This is a drill,
since it takes the cores from the tests beside it; how the reason is found is tested in
``unit/rehearsal/test_rehearse_load.py``, too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, Ran, rehearse
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec.results import format_time, parse_time

pytestmark = [pytest.mark.slow, pytest.mark.drill]

QUERY = """\
queries:
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, avg, min, max]
    bound: 1s
"""
BEGINS_S, LASTS_S, REPLAY_S = 3.0, 8.0, 24.0
IN_TIME_AGAIN_S = 5.0
HOG = """\
import os, sys, time
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(sys.argv[1]) % len(cores)]})
try:
    # Where sessions share the cores (autogroup), a nice value counts within its session only.
    with open("/proc/self/autogroup", "w") as file:
        file.write("-20")
except OSError:
    pass
try:
    os.nice(-20)
except PermissionError:
    pass
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    sum(range(10_000))
print(time.time_ns() // 1000)
"""


@dataclass(frozen=True)
class Overloaded:
    """The rehearsal, and the wall time (us) at which the load ended."""

    ran: Ran
    load_end_us: int
    root_log: str


def due_times(ran: Ran) -> dict[str, int]:
    """Return the normal time of each answered window, by its start: wall time in us."""
    due = {}
    for line in ran.of("climate", "boundary"):
        start, of_last = parse_time(line["window_start"]), parse_time(line["due_at"])
        for n in range(line["windows"]):
            at = of_last - (line["windows"] - 1 - n) * 1_000_000
            due[format_time(start + n * 60_000_000)] = at
    return due


@contextmanager
def load_when(out: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start the load once the replay has begun (its first line is in the file)."""
    per_core = 4 if os.geteuid() == 0 else 24  # only root may lower the nice value
    watch = f"""\
import subprocess, sys, time
from pathlib import Path
while not Path({str(out)!r}).exists() or not Path({str(out)!r}).read_bytes().count(b"\\n"):
    time.sleep(0.05)
time.sleep({BEGINS_S})
hogs = [
    subprocess.Popen([sys.executable, "-c", {HOG!r}, str(n), "{LASTS_S}"], start_new_session=True)
    for n in range({per_core * len(os.sched_getaffinity(0))})
]
for hog in hogs:
    hog.wait()
"""
    command = [sys.executable, "-c", watch]
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield [watching]
    finally:
        watching.kill()  # the load ends by itself
        watching.wait()


@pytest.fixture(scope="module", name="overloaded")
def _overloaded(tmp_path_factory: pytest.TempPathFactory) -> Overloaded:
    folder = tmp_path_factory.mktemp("overload")
    with load_when(folder / "r.jsonl") as (watching,):
        options = ("--speed", "60", "--duration", f"{REPLAY_S:g}s", "--data-dir", "data")
        ran = rehearse(folder, ROOMS_YAML + QUERY, ROOMS, *options)
        shown, _ = watching.communicate(timeout=WAIT_S_MAX)
    root_log = (folder / "data" / "logs" / "host-0.log").read_text()
    return Overloaded(ran, max(map(int, shown.split())), root_log)


def test_a_machine_that_is_too_slow_fails_a_rehearsal_and_is_the_reason(
    overloaded: Overloaded,
) -> None:
    ran = overloaded.ran
    assert ran.code == 1, ran.shown
    climate = ran.report["queries"]["climate"]
    assert climate["beyond_bound"] > 0
    assert "of climate were first answered beyond their bound of 1 s and 250 ms" in ran.shown
    found = ran.report["overloaded"]
    assert found["machine_busy"] > 0.9
    assert found["machine_others"] > 0.5, "the load is not part of the rehearsal"
    assert found["processes"], "processes out of CPU"
    first = ran.report["findings"][0]
    assert first.startswith("overloaded: ")
    assert found["processes"][0]["process"] in first
    late = [each["late_ms"] - each["allowed_ms"] for each in climate["late_windows"]]
    assert late == sorted(late, reverse=True), "the worst first"


def test_the_root_logs_one_line_when_lateness_begins_and_one_when_it_ends(
    overloaded: Overloaded,
) -> None:
    lines = [line for line in overloaded.root_log.splitlines() if "first answers " in line]
    begins = ["exceed their bound of 1 s" in line for line in lines]
    assert begins[0], overloaded.root_log
    assert begins == [at % 2 == 0 for at in range(len(lines))], "one begins, one ends, alternating"


def test_what_is_late_is_exact_all_the_same(overloaded: Overloaded) -> None:
    ran = overloaded.ran
    climate = ran.report["queries"]["climate"]
    assert [climate[what] for what in ("lost", "doubled", "uncorrected", "wrong")] == [0] * 4
    others = [f for f in ran.report["findings"] if not f.startswith(("late: ", "overloaded: "))]
    assert others == []


def test_first_answers_are_in_time_again_soon_after_the_load(
    overloaded: Overloaded, capsys: pytest.CaptureFixture[str]
) -> None:
    """In time: readable from the broker within the bound, at any time of this machine's reader.

    This test runs alone on the machine. The others of this file run beside other tests, too.
    """
    ran, end = overloaded.ran, overloaded.load_end_us
    climate, due = ran.report["queries"]["climate"], due_times(ran)
    late = [due[window["window_start"]] for window in climate["late_windows"]]
    assert len(late) == climate["beyond_bound"], "each is named"
    lines = [line for line in overloaded.root_log.splitlines() if "first answers " in line]
    assert len(lines) <= 4, "not one for each window"
    last_s = (max(late) - end) / 1e6
    with capsys.disabled():
        print(f"\nfirst answers were in time again {last_s:.2f} s after the load")  # noqa: T201
    assert last_s <= IN_TIME_AGAIN_S
    assert any(at > end + IN_TIME_AGAIN_S * 1e6 for at in due.values()), "some were due later"
