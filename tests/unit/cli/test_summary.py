"""The page of status: verdict first, everything that is not well, and one screen of 80 x 24."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest
from rich.console import Console
from tests.unit.machine.test_layout import query

from slackwater.cli.summary import PageLine, page, page_json, plain, rich_page, shortened
from slackwater.control.clock_offset import ClockOffset
from slackwater.model.deployment import WindowSpec
from slackwater.model.limits import NEVER
from slackwater.model.records import Heartbeat
from slackwater.proxy.topic.input import progress
from slackwater.runtime.service.datadir import Life
from slackwater.runtime.service.parts import SLOTS, SLOTS_NEEDED
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.overview import ControllerRow, FragmentRow, NodeRow, Overview
from slackwater.status.processes import ObservedHeartbeat, Picture, look_at
from slackwater.status.queries import ago, moment, streams_of

S = 1_000_000
NOW = 1_795_696_000 * S
"""2026-11-26T12:26:40Z"""
START = NOW - 600 * S
WINDOW = WindowSpec(10 * S, 10 * S)
NUMBERED: dict[str, dict[str, str]] = {"aggregator/0": {}, "aggregator/1": {}}
"""The aggregators of a single machine, with the states of their fragments."""


def definition(name: str, *sources: str, bound_us: int = 2 * S) -> QueryDefinition:
    spec = replace(query(name, *sources), window=WINDOW, bound_us=bound_us, parts=1, children=1)
    return QueryDefinition(name, 0, START, 100_000, spec)


def beat(process: str, state: str = "", **detail: int) -> Heartbeat:
    states = {"t": state} if state else {}
    return Heartbeat(process, 7, NOW - 90 * S, NOW, 0, True, states, (), detail)


def root(name: str, exact_from: int, answered_to: int, state: str = "STABLE") -> Heartbeat:
    detail = {"stable_from": exact_from, "answered_to": answered_to, "p99_ms": 43}
    return beat(f"root/{name}.0", state, **detail)


def proxy(stream: str, last: int | None, **detail: int) -> Heartbeat:
    extent = {} if last is None else {"last_reading": last, "complete_to": last}
    return beat(f"proxy/{stream}", "STABLE", **extent, **detail)


def picture(
    queries: list[QueryDefinition],
    *beats: Heartbeat,
    without: tuple[str, ...] = (),
    lives: dict[str, Life] | None = None,
    aggregators: dict[str, dict[str, str]] = NUMBERED,
) -> Picture:
    """Everything that the queries need is ready; the heartbeats given are in place of those."""
    names: list[str] = []
    for each in queries:
        names += [f"proxy/{source}" for source in each.spec.sources]
        names += [f"orderer/{each.name}.0.{replica}" for replica in "ab"]
        names.append(f"root/{each.name}.0")
    ready = {name: replace(beat(name), states=states) for name, states in aggregators.items()}
    ready |= {name: beat(name) for name in names} | {each.process: each for each in beats}
    latest = {n: ObservedHeartbeat(b, 50.0) for n, b in ready.items() if n not in without}
    return look_at(latest, {each.name: each for each in queries}, lives, NOW, NOW)


def shown(of: Picture, overview: Overview | None = None, *, verbose: bool = False) -> list[str]:
    return plain(page(of, overview, NOW, "h:1", verbose=verbose)).splitlines()


def test_a_query_is_shown_by_how_far_it_is_exact_and_how_fast_it_answers() -> None:
    of = picture(
        [definition("climate", "a", "b")],
        root("climate", NOW - 10 * S, NOW - 10 * S),
        proxy("a", NOW - 200_000),
        proxy("b", NOW - 3 * S),
    )
    assert shown(of) == [
        "all is well at 12:26:40 UTC: 1 query exact, 7 processes ready",
        "climate     exact to 12:26:30, 10 s ago, 2 streams, p99 43 ms of 2 s",
        "a           last reading 12:26:39, 0.2 s ago",
        "b           last reading 12:26:37, 3.0 s ago",
        "processes   2 proxies, 2 orderers, 2 aggregators, 1 root ready, up 90 s",
    ]


def test_a_query_whose_answers_came_after_the_bound_is_not_well() -> None:
    late = replace(
        root("climate", NOW - 10 * S, NOW - 10 * S),
        detail={"stable_from": NOW - 10 * S, "answered_to": NOW - 10 * S, "p99_ms": 2_400},
    )
    lines = shown(picture([definition("climate", "a")], late, proxy("a", NOW)))
    assert lines[0] == "all runs at 12:26:40 UTC; answers of climate were too late, see p99"
    assert lines[1].endswith("p99 2400 ms of 2 s: too late")
    history = replace(picture([definition("climate", "a")], late, proxy("a", NOW)), event_us=None)
    assert shown(history)[0].startswith("all is well"), "all of it is due at once"


def test_a_query_behind_readings_that_are_there_is_in_the_first_line() -> None:
    of = picture(
        [definition(name, "a", "b") for name in ("climate", "other", "third", "good")],
        root("climate", NOW - 200 * S, NOW - 200 * S),
        root("other", NOW - 60 * S, NOW - 10 * S, "STABILIZATION"),
        root("third", NOW - 30 * S, NOW - 30 * S),
        root("good", NOW - 10 * S, NOW - 10 * S),
        proxy("a", NOW),
        proxy("b", NOW - S),
    )
    lines = shown(of)
    assert lines[0] == (
        "all processes run at 12:26:40 UTC, but climate is 3 min behind its readings,"
        " other is 49 s behind its readings and 1 more"
    )
    assert lines[1].startswith("climate     exact to 12:23:20, 3 min ago, 2 streams, p99 43 ms")
    assert lines[1].endswith(", 3 min behind its readings")
    behind = {row["query"]: row["behind_ms"] for row in page_json(of, None, NOW)["queries"]}
    assert behind == {"climate": 189_000, "other": 49_000, "third": 19_000, "good": 0}


def test_a_query_whose_readings_are_not_there_is_not_behind() -> None:
    """It waits for its streams: one is late, or its proxy is stopped."""
    stuck = root("climate", NOW - 200 * S, NOW - 200 * S)
    late = picture(
        [definition("climate", "a", "b")], stuck, proxy("a", NOW), proxy("b", NOW - 200 * S)
    )
    stopped = picture(
        [definition("climate", "a", "b")], stuck, proxy("a", NOW), without=("proxy/b",)
    )
    for of in (late, stopped):
        assert not any("behind" in line for line in shown(of)), shown(of)
        assert of.queries[0].behind_us == 0


def test_what_a_tentative_answer_lacks_is_named_at_the_query_and_at_the_stream() -> None:
    of = picture(
        [definition("climate", "a", "lab"), definition("other", "a")],
        root("climate", NOW - 40 * S, NOW - 10 * S, "UP_FAILURE"),
        root("other", NOW - 10 * S, NOW - 10 * S),
        proxy("a", NOW - 200_000),
        proxy("lab", NOW - 35 * S, late=15, malformed=2),
    )
    lines = shown(of)
    assert lines[0] == "all runs at 12:26:40 UTC; 1 of 2 queries not exact now, without lab"
    assert "climate     3 windows tentative without lab, exact to 12:26:00, 40 s ago" in lines[1]
    assert lines[2].startswith("other       exact to 12:26:30")
    lab = (
        "lab         MISSING: last reading 12:26:05, 35 s ago; in quarantine: 15 late, 2 malformed"
        " (slackwater quarantine lab)"
    )
    assert lab in lines
    assert of.wrong == []


def lab_of_partitions(*watermarks: int) -> tuple[Picture, str]:
    """A tentative query over a topic whose partitions are complete up to these times."""
    details = progress(dict(enumerate(watermarks)))
    of = picture(
        [definition("climate", "lab")],
        root("climate", NOW - 40 * S, NOW - 10 * S, "UP_FAILURE"),
        proxy("lab", min(watermarks), **details),
    )
    return of, next(line for line in shown(of) if line.startswith("lab"))


def test_the_partitions_that_a_missing_stream_lacks_are_named() -> None:
    of, line = lab_of_partitions(NOW - S, NOW - 35 * S, NOW - S, NOW - 34 * S)
    assert line.endswith("; only partitions 1, 3 behind, complete to 12:26:05")
    assert page_json(of, None, NOW)["streams"][0]["partitions_behind"] == [1, 3]
    _, line = lab_of_partitions(NOW - S, NOW - 35 * S)
    assert line.endswith("; only partition 1 behind, complete to 12:26:05")


def test_of_a_stream_that_is_silent_as_a_whole_no_partition_is_named() -> None:
    _, line = lab_of_partitions(NOW - 35 * S, NOW - 35 * S - 200_000)
    assert line.endswith("ago")
    _, line = lab_of_partitions(NOW - 35 * S)
    assert line.endswith("ago")


def test_of_many_partitions_the_ten_furthest_behind_are_named() -> None:
    details = progress({n: NOW - n * S for n in range(200)} | {200: NEVER})
    assert details == {f"partition_to.{n}": NOW - n * S for n in (0, *range(190, 200))}
    of, _ = lab_of_partitions(*[NOW - 35 * S] * 20, NOW)
    (lab,) = (row for row in of.streams if row.name == "lab")
    assert len(lab.partitions_behind) == 10


def test_corrections_and_a_start_are_said() -> None:
    correcting = root("climate", NOW - 40 * S, NOW - 10 * S, "STABILIZATION")
    of = picture([definition("climate", "a")], correcting, proxy("a", NOW))
    assert "3 windows being corrected, exact to" in shown(of)[1]
    starting = replace(correcting, ready=False, detail={})
    lines = shown(picture([definition("climate", "a")], starting, proxy("a", None)))
    assert lines[0] == "NOT WELL at 12:26:40 UTC: 1 problem"
    assert lines[1] == "! not ready: root/climate.0, of climate"
    assert "climate         is starting, 1 stream" in lines
    assert "a               no reading yet" in lines
    assert "root/climate.0  not ready" in lines


def test_a_query_of_queries_has_the_streams_of_those_that_it_reads() -> None:
    queries = {
        each.name: each
        for each in (definition("a1", "s", "t"), definition("b", "a1"), definition("c", "b", "u"))
    }
    assert streams_of(queries["c"], queries) == ("u", "s", "t")


def test_an_aggregator_of_which_tasks_wait_says_what_it_needs() -> None:
    waits = beat("aggregator/0", "UP_FAILURE", **{SLOTS: 4, SLOTS_NEEDED: 8})
    lines = shown(picture([definition("climate", "a", "b")], waits))
    (line,) = [line for line in lines if "aggregator/0" in line]
    assert line.endswith("needs 8 task slots, and Spark has 4: add workers")


def test_a_process_with_trouble_has_a_line_with_times_and_no_zeros() -> None:
    died = Life(
        restarts=2,
        last_exit="SIGSEGV",
        last_exit_at_us=NOW - 3 * S,
        last_error="Segmentation fault",
    )
    old = replace_life(died, NOW - 3_600 * S)
    lives = {"orderer/climate.0.a": died, "orderer/climate.0.b": old}
    of = picture([definition("climate", "a")], beat("root/climate.0", forks=0), lives=lives)
    lines = shown(of)
    assert any(
        line.startswith("orderer/climate.0.a ")
        and line.endswith("restarts: 2, last exit SIGSEGV 3s ago: Segmentation fault")
        for line in lines
    )
    assert not any(line.startswith("orderer/climate.0.b") for line in lines), "it is over"
    assert not any("=" in line for line in lines), "counters are those of -v"
    assert any("forks=0" in line for line in shown(of, verbose=True))


def replace_life(life: Life, at: int) -> Life:
    return life.model_copy(update={"last_exit_at_us": at})


def many(n: int, streams: int = 4) -> Picture:
    """Return a picture of n queries on three nodes, all exact."""
    names = [f"s{i}" for i in range(streams)]
    queries = [definition(f"query-{i:02}", *names) for i in range(n)]
    beats = [root(each.name, NOW - 10 * S, NOW - 10 * S) for each in queries]
    proxies = [proxy(name, NOW - S) for name in names]
    named = {
        f"aggregator/n{at}-0": {f"{each.name}.0.{replica}": "STABLE" for each in queries}
        for at, replica in enumerate("ab", start=1)
    }
    return picture(queries, *beats, *proxies, aggregators=named)


def on_nodes(of: Picture) -> Overview:
    fragments = [row.process for row in of.rows if not row.process.startswith("aggregator")]
    replicas = {"a": "n1", "b": "n2"}
    rows = tuple(
        FragmentRow(name, replicas.get(name[-1], f"n{i % 3 + 1}"), "ready")
        for i, name in enumerate(fragments)
    )
    nodes = tuple(
        NodeRow(f"n{i}", "steady", (), False, 100, (), {"h:1": ClockOffset(120, 80)}, ())
        for i in (1, 2, 3)
    )
    return Overview((ControllerRow("h:1", "a", 4, ("a",)),), nodes=nodes, fragments=rows)


def rendered(lines: list[PageLine], *, terminal: bool = True) -> list[str]:
    console = Console(width=80, height=24, file=io.StringIO(), force_terminal=terminal, record=True)
    console.print(rich_page(lines))
    return console.export_text().rstrip("\n").split("\n")


@pytest.mark.parametrize("queries", [10, 40])
@pytest.mark.parametrize("streams", [4, 40])
def test_ten_queries_and_three_nodes_fit_a_screen(queries: int, streams: int) -> None:
    of = many(queries, streams)
    lines = rendered(page(of, on_nodes(of), NOW, "h:1", verbose=False))
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith(f"all is well at 12:26:40 UTC: {queries} queries exact")
    assert sum(line.startswith("node n") for line in lines) == 3
    if queries == 40:
        assert any("31 more queries, exact, to 12:26:30" in line for line in lines)
    if streams == 40:
        assert any("40 without a remark, last readings at most 1.0 s ago" in line for line in lines)


def test_a_start_of_ten_queries_fits_a_screen_too() -> None:
    names = [f"room-query-number-{i}" for i in range(10)]
    queries = [definition(name, "a", "b") for name in names]
    beats = [replace(root(name, 0, 0), ready=False, detail={}) for name in names]
    of = picture(queries, *beats, proxy("a", NOW), proxy("b", NOW))
    lines = rendered(page(of, None, NOW, "h:1", verbose=False))
    assert len(lines) <= 20, "the error that follows has four"
    assert lines[0].startswith("NOT WELL at 12:26:40 UTC: 10 problems")
    assert lines[3].startswith("! not ready: root/room-query-number-2.0, of room-query-number-2")
    assert lines[4].startswith("! 7 more: `slackwater status -v`")
    assert any(
        re.match(r"10 roots +not ready: root/room-query-number-0.0 and 9 more", line)
        for line in lines
    )
    every = shown(of, verbose=True)
    assert sum(line.startswith("! not ready: root/") for line in every) == 10
    assert page_json(of, None, NOW)["problems"] == of.wrong
    assert len("; ".join(shortened(of.wrong))) < 4 * 80


def test_the_json_has_everything() -> None:
    of = many(2)
    out = json.loads(json.dumps(page_json(of, on_nodes(of), NOW)))
    assert (out["well"], out["problems"], out["at"]) == (True, [], "2026-11-26T12:26:40.000000Z")
    assert out["queries"][0] == {
        "query": "query-00", "state": "exact", "streams": ["s0", "s1", "s2", "s3"],
        "exact_to": "2026-11-26T12:26:30.000000Z", "tentative_windows": 0, "missing": [],
        "bound_ms": 2000.0, "p99_ms": 43, "behind_ms": 0.0, "problem": None,
        "windows_with_losses": 0,
        "remarks": [],
    }  # fmt: skip
    assert out["streams"][0] == {
        "stream": "s0", "runs": True, "last_reading": "2026-11-26T12:26:39.000000Z",
        "complete_to": "2026-11-26T12:26:39.000000Z", "quarantined": {}, "missing": False,
        "partitions_behind": [], "remarks": [],
    }  # fmt: skip
    assert {row["process"] for row in out["processes"]} == {row.process for row in of.rows}
    assert [row["node"] for row in out["nodes"]] == ["n1", "n2", "n3"]


def test_times_are_short() -> None:
    ages = {
        100_000: "0.1 s ago", -2 * S: "2.0 s ahead", 40 * S: "40 s ago", 150 * S: "2 min ago",
        3 * 3_600 * S: "3 h ago", 50 * 3_600 * S: "2 days ago",
    }  # fmt: skip
    for us, text in ages.items():
        assert ago(us) == text
    assert moment(NOW, NOW + S) == "12:26:40"
    assert moment(NOW, None) == "2026-11-26 12:26:40"
    assert moment(0, NOW) == "1970-01-01 00:00:00"
