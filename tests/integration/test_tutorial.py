"""The tutorial as a reader types it, with what the page says that they then see."""

from __future__ import annotations

from functools import partial

import orjson
import pytest
from tests.integration.pages import (
    ROOT,
    Page,
    Shell,
    Terminal,
    bootstrap_in,
    commands,
    has_shown,
    is_up,
    merged,
)
from tests.integration.rehearsing import REHEARSED_S_MAX
from tests.support.halt_witness import Witness
from tests.support.waiting import WAIT_S_MAX

# Its short form: test_readme.py types README and its steps, which use the same commands.
pytestmark = [pytest.mark.slow, pytest.mark.drill]

TUTORIAL = (ROOT / "docs/tutorial.md").read_text()
SETUP = "make setup"
"""Of a fresh clone: the test run has done it."""


def test_the_tutorial_does_what_it_says(shell: Shell) -> None:
    page = Page(TUTORIAL)
    first = page.take("sh", SETUP)
    assert SETUP in commands(first)
    examined = shell.run(first.replace(SETUP, ""))
    assert examined.returncode == 0, examined.stdout
    header, reading = shell.run(page.take("sh", "mkdir first")).stdout.splitlines()
    assert header.startswith("ts,")
    assert len(reading.partition(",")[0]) == len("1458031648545")
    shell.folder = folder = shell.folder / "first"
    deployment = folder / "rooms.yaml"
    rooms = page.take("yaml", "apiVersion")
    deployment.write_text(rooms)

    rehearses(shell, page.take("sh", "slackwater rehearse"), page.take("sh", "grep"))

    (up,) = commands(page.take("sh", "slackwater up"))
    (follow,) = commands(page.take("sh", "slackwater results"))
    (ingest,) = commands(page.take("sh", "slackwater ingest"))
    with shell.started("bash", "-c", up) as running:
        lines = running.wait_for(is_up, WAIT_S_MAX)
        assert lines[0].startswith("bootstrap 127.0.0.1:")
        with shell.started("bash", "-c", follow) as results:
            nothing_is_printed_before_the_first_reading(shell, results)
            assert shell.run(ingest).returncode == 0
            results.wait_for(has_two_tables, WAIT_S_MAX)
    assert running.process.returncode == 0, running.shown

    deployment.write_text(merged(rooms, page.take("yaml", "lab-readings")))
    produce, watch = page.take("sh", "kcat -P"), page.take("sh", "slackwater watch")
    status, audit = commands(page.take("sh", "slackwater status"))
    page.ends()
    with shell.started("bash", "-c", up) as running:
        bootstrap = bootstrap_in(running.wait_for(is_up, WAIT_S_MAX))
        produce = produce.replace("PORT", bootstrap.rpartition(":")[2])
        is_cut_off_and_corrected(shell, produce, watch)
        assert "lab-averages " in shell.run(status).stdout
        audited = shell.run(audit, REHEARSED_S_MAX)
        assert audited.returncode == 0, audited.stdout + audited.stderr
        assert "0 lost, 0 doubled, 0 wrong" in audited.stdout


def rehearses(shell: Shell, rehearsal: str, history: str) -> None:
    """Run step 3, and look at the history of a window as the page does."""
    with Witness(shell.folder) as witness:
        done = shell.run(rehearsal, REHEARSED_S_MAX)
    report = orjson.loads((shell.folder / "report.json").read_bytes())
    # Otherwise answers may be late, and the output must show this.
    if report["overloaded"] is None and not witness.stood_still:
        assert done.returncode == 0, done.stdout + done.stderr
    records = [orjson.loads(line) for line in shell.run(history).stdout.splitlines()]
    assert records[0]["kind"] == "tentative"
    assert "room-2" in records[0]["missing"]
    assert {record["kind"] for record in records[3:]} == {"undo", "rec_done"}


def nothing_is_printed_before_the_first_reading(shell: Shell, results: Terminal) -> None:
    """Wait for windows that are answered: none has a row, and none was tentative."""
    ended = "slackwater results climate --kind boundary,tentative,undo"
    answers = shell.run(f"until {ended} | grep .; do sleep 0.2; done").stdout.splitlines()
    assert {line.split()[0] for line in answers} == {"stable"}
    results.wait_for(lambda _: True, WAIT_S_MAX)
    assert [line for line in results.lines if not line.startswith("slackwater: ")] == []


def has_two_tables(lines: list[str]) -> bool:
    """Whether two exact windows were printed, with a row for each room and field."""
    rows = [line.split() for line in lines]
    named = {(row[0], row[1]) for row in rows if len(row) > 2}
    fields = {row[0] for row in rows if row} | {name for _, name in named}
    return (
        sum(line.endswith("  exact") for line in lines) >= 2
        and {("room-1", "temperature"), ("room-2", "temperature")} <= named
        and "humidity" in fields
    )


def is_cut_off_and_corrected(shell: Shell, produce: str, watch: str) -> None:
    """Run step 6: the producer is interrupted until answers lack it, and started again."""
    # kcat handles Ctrl-C and ends with 0, after which bash would go on without the trap.
    producer = ("bash", "-c", f"trap exit INT; {produce}")
    with shell.started("bash", "-c", watch) as board:
        with shell.started(*producer):
            board.wait_for(partial(has_shown, " exact"), WAIT_S_MAX)
        board.wait_for(partial(has_shown, "tentative, without lab"), WAIT_S_MAX)
        with shell.started(*producer):
            board.wait_for(partial(has_shown, "exact (corrected)"), WAIT_S_MAX)
