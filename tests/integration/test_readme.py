"""The commands of the README and of its page of steps, run unchanged and in their order: a shell.

Every code block of both pages is run here or listed below by name; a new block fails the test until
it is. Replaced are the broker's port and the files that the steps call ``monday-1.csv`` and
``monday-2.csv.gz``. The output of commands without an end is read until it has the content that the
page shows; they are then interrupted with Ctrl-C. One start of ``slackwater up`` serves both pages.
The rehearsals are planned only; the README's is run by a drill.

`slackwater up` runs with a umask of 0: its files must nevertheless be private.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.integration.pages import (
    Page,
    Shell,
    bootstrap_in,
    commands,
    has_shown,
    is_up,
    merged,
    shell_of,
)
from tests.integration.rehearsing import REHEARSED_S_MAX, ROOMS, Ran
from tests.support.files import paths
from tests.support.halt_witness import Witness
from tests.support.waiting import WAIT_S_MAX, eventually

from slackwater.client.follow import KINDS
from slackwater.deployment.parse import load_deployment
from slackwater.rehearsal.plan import make_plan
from slackwater.runtime.service.datadir import read_run

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
STEPS = (ROOT / "docs/howto/your-own-data.md").read_text()
READING = (ROOT / "docs/howto/read-results.md").read_text()
EXCEPTED = ("make demo", "make images", "docker compose", "127.0.0.1:9092")
"""For a developer's machine or containers: tests/integration/test_demo.py and tests/e2e."""


def stable_rows(lines: list[str]) -> list[dict[str, Any]]:
    """Return the lines that are a stable row."""
    found = []
    for line in lines:
        with contextlib.suppress(orjson.JSONDecodeError):
            row = orjson.loads(line)
            if row["kind"] == "stable":
                assert {"window_start", "window_end", "key", "fields", "due_at"} <= row.keys()
                found.append(row)
    return found


def assert_each_stage_is_shown(printed: str) -> None:
    """Check that a start prints each stage when it is ready."""
    stages = ("Kafka", "proxies", "orderers", "aggregators (Spark)", "roots")
    lacking = [
        each
        for each in stages
        if not re.search(rf"ready after +[\d.]+ s: {re.escape(each)}", printed)
    ]
    assert lacking == [], printed


@pytest.mark.drill
def test_the_rehearsal_of_the_readme(shell: Shell) -> None:
    """It takes a minute; test_demo.py and test_drills.py run others."""
    readme = Page(README, EXCEPTED)
    assert shell.run(readme.take("sh", "slackwater init")).returncode == 0
    shell.folder = shell.folder / "rooms"
    (shell.folder / "rooms.yaml").write_text(readme.take("yaml", "apiVersion"))
    rehearsal, *_ = commands(readme.take("sh", "slackwater rehearse"))
    with Witness(shell.folder) as witness:
        done = shell.run(f"{rehearsal} --report report.json", REHEARSED_S_MAX)
    report = orjson.loads((shell.folder / "report.json").read_bytes())
    lines = (shell.folder / "results.jsonl").read_bytes().splitlines()
    shown = done.stdout + done.stderr
    ran = Ran(done.returncode, shown, report, [*map(orjson.loads, lines)], witness.stood_still)
    ran.agreed()
    assert_each_stage_is_shown(done.stdout)
    assert {"stable", "tentative", "undo", "rec_done"} <= ran.kinds("climate")
    if done.returncode == 0:
        assert "all results equal the batch computation" in done.stdout


def other_eyes(path: Path) -> list[Path]:
    """Return the files that others may read there, while processes write."""
    found = []
    for at in paths(path):
        with contextlib.suppress(FileNotFoundError):
            if not at.is_symlink() and at.stat().st_mode & 0o77:
                found.append(at)
    return found


def test_every_command_of_the_readme_and_its_steps(shell: Shell) -> None:
    readme, steps = Page(README, EXCEPTED), Page(STEPS, EXCEPTED)
    begun = shell.run(readme.take("sh", "slackwater init"))
    assert begun.returncode == 0, begun.stderr
    shell.folder = folder = shell.folder / "rooms"
    assert load_deployment(folder / "drafted.yaml").streams.keys() == {"room-1", "room-2"}

    deployment = folder / "rooms.yaml"
    deployment.write_text(readme.take("yaml", "apiVersion"))
    rehearsal, up, ingest = commands(readme.take("sh", "slackwater rehearse"))
    looks = commands(readme.take("sh", "slackwater watch"))
    readme.ends()
    can_be_planned(deployment, rehearsal, ["silence"])

    rooms = steps.take("yaml", "apiVersion")
    deployment.write_text(rooms)
    _, with_a_kill = commands(steps.take("sh", "slackwater rehearse"))
    can_be_planned(deployment, with_a_kill, ["silence", "kill"])
    assert commands(steps.take("sh", "slackwater up")) == [up]
    of_steps = ingest.replace("room-1.csv.gz", "monday-1.csv").replace("room-2.csv", "monday-2.csv")
    assert steps.inline("slackwater ingest") == of_steps
    lab, produce = steps.take("yaml", "lab-readings"), steps.take("sh", "kcat -P")
    reading = [
        shell_of(steps.take("sh", "kcat -C")),
        python_of(steps.take("python", "confluent_kafka")),
        python_of(steps.take("python", "slackwater.Client")),
        python_of(Page(READING).take("python", "slackwater.Client")),
    ]
    built_on, changing = steps.take("yaml", "pairs"), steps.take("sh", "slackwater query apply")
    steps.take("sh", "slackwater backfill")  # test_backfill.py runs it, over fewer readings
    steps.ends()
    deployment.write_text(merged(rooms, lab))
    names = set(load_deployment(deployment).queries)

    # One start for both pages; test_stack.py shows that a second one continues.
    with shell.started("bash", "-c", up, umask=0) as terminal:
        bootstrap = bootstrap_in(terminal.wait_for(is_up, WAIT_S_MAX))
        run = read_run(folder / ".slackwater")
        assert run is not None
        assert bootstrap == run.bootstrap
        assert_each_stage_is_shown("\n".join(terminal.lines))
        port = bootstrap.rpartition(":")[2]
        done = shell.run(ingest)
        assert re.findall(r"is passed to proxy/(room-\d)", done.stdout) == ["room-1", "room-2"], (
            done
        )
        uses(shell, produce.replace("PORT", port), [part(port) for part in reading], names, looks)
        assert_sent_one_by_one(bootstrap, "lab-readings")
        # test_rehearse_forms.py checks their results; here, all of it must run.
        deployment.write_text(merged(rooms, lab, built_on))
        changes_queries(shell, changing, set(load_deployment(deployment).queries) - names)
        assert other_eyes(folder / ".slackwater") == []
    assert terminal.process.returncode == 0, terminal.shown


def can_be_planned(deployment: Path, command: str, verbs: list[str]) -> None:
    """Check a rehearsal with the page's options, without running it."""
    given = shlex.split(command.partition("rehearse ")[2])[1:]
    options = [(a, b) for a, b in zip(given[::2], given[1::2], strict=True)]
    plan = make_plan(
        load_deployment(deployment),
        {f"room-{n}": ROOMS[f"room-{n}"] for n in (1, 2)},
        speed=float(dict(options)["--speed"]),
        duration_us=20_000_000,
        faults=[text for name, text in options if name == "--fault"],
        seed=0,
        processes=["orderer/climate.0.a"],
    )
    assert [fault.verb for fault in plan.faults] == verbs


def changes_queries(shell: Shell, commands: str, added: set[str]) -> None:
    """Run step 7: its commands one after the other, and check the registry."""
    done = shell.run(commands, 2 * WAIT_S_MAX)
    assert done.returncode == 0, done.stderr
    for name in added:
        assert f"query {name} runs; its event time starts at " in done.stdout
    assert "its inputs are kept for 30d: readings that are deleted before" in done.stdout
    reported = ["is paused", "is resumed", "is deleted; its results stay"]
    assert [what for what in reported if f"query worst {what}" not in done.stdout] == []
    there = "slackwater query list"
    shell.run(f"until ! {there} | grep -q worst; do sleep 0.2; done")
    assert "pairs" in shell.run(there).stdout


def python_of(text: str) -> Callable[[str], list[str]]:
    return lambda port: [sys.executable, "-c", text.replace("PORT", port)]


def uses(
    shell: Shell, produce: str, reading: list[list[str]], names: set[str], looks: list[str]
) -> None:
    """Run steps 4 to 6, what the README looks at, and other commands on the running deployment."""
    watch, follow, status, gateway = looks
    for command, watermark_made in (
        (status, {"climate ", "lab ", " UTC", "proxies, "}),
        ("slackwater quarantine lab", {" in quarantine"}),
        ("slackwater query list", names),
        ("slackwater query show climate", {'"bound_us": 2000000'}),
        ("slackwater topics --deployment rooms.yaml", {"all topics of"}),
        ("slackwater doctor", {"ok   broker"}),
    ):
        done = shell.run(command)
        assert [what for what in watermark_made if what not in done.stdout] == [], done.stdout

    kcat, consumer, client, answers = reading
    with contextlib.ExitStack() as stack:
        # kcat handles Ctrl-C and ends with 0, after which bash would go on without the trap.
        produced = stack.enter_context(shell.started("bash", "-c", f"trap exit INT; {produce}"))
        results, board, dumb, rows, other, snippet, printed, lab = (
            stack.enter_context(shell.started(*command))
            for command in (
                ["bash", "-c", follow],
                ["bash", "-c", watch],
                ["bash", "-c", f"TERM=dumb {watch}"],
                kcat,
                consumer,
                client,
                answers,
                ["slackwater", "results", "lab-minutes", "--follow", "--kind", "stable"],
            )
        )
        rows.wait_for(lambda lines: bool(stable_rows(lines)), WAIT_S_MAX)
        other.wait_for(lambda lines: bool(stable_rows(lines)), WAIT_S_MAX)
        results.wait_for(partial(has_shown, "  exact"), WAIT_S_MAX)
        snippet.wait_for(partial(has_shown, "stable "), WAIT_S_MAX)
        printed.wait_for(partial(has_shown, "exact "), WAIT_S_MAX)
        assert {line.split()[0] for line in snippet.lines} <= KINDS
        for text in ("climate: avg of temperature", " exact", "hall"):
            board.wait_for(partial(has_shown, text), WAIT_S_MAX)
        dumb.wait_for(partial(has_shown, " exact"), WAIT_S_MAX)
        lab.wait_for(lambda lines: any(" m7 " in line for line in lines), WAIT_S_MAX)
        page = stack.enter_context(shell.started(*shlex.split(gateway)))
        shown = page.wait_for(partial(has_shown, "http://"), WAIT_S_MAX)
        eventually(
            lambda: {each["query"] for each in overview_of(shown)["queries"]} >= names,
            "the live page has all queries",
        )
        assert produced.process.poll() is None, produced.shown
    drafted = shell.run("slackwater init lab-readings").stdout
    for line in ("topic: {name: lab-readings, format: json}", "field: mote}", "unit: us}"):
        assert line in drafted


def overview_of(lines: list[str]) -> dict[str, Any]:
    """Return what the live page shows first, from the address that the command printed."""
    (address,) = {found for line in lines for found in re.findall(r"http://[\d.:]+", line)}
    with urllib.request.urlopen(f"{address}/api/v1/overview", timeout=WAIT_S_MAX) as answer:
        return dict(orjson.loads(answer.read()))


def assert_sent_one_by_one(bootstrap: str, topic: str) -> None:
    """Check that the page's producer sends each reading when it is made, not many at once."""
    stamps = broker_timestamps(bootstrap, topic)
    assert len(stamps) >= 2
    assert len(set(stamps)) == len(stamps), stamps


def broker_timestamps(bootstrap: str, topic: str) -> list[int]:
    """Return the timestamps in ms of all records of a topic's only partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stamps"})
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=WAIT_S_MAX)
        consumer.assign([partition])
        found: list[int] = []
        deadline = time.monotonic() + WAIT_S_MAX
        while len(found) < end and time.monotonic() < deadline:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                found.append(message.timestamp()[1])
        assert len(found) == end
        return found
    finally:
        consumer.close()
