"""Findings of status: missing, crashed and overloaded processes with reasons; exit code 1 for each.

Heartbeats, definitions and the supervisor's record are built here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.machine.test_layout import query, stream

from slackwater.cli import show
from slackwater.cli.control_status import Controls
from slackwater.cli.controls import Reach, find_controllers
from slackwater.cli.show import _as_json, print_status
from slackwater.cli.summary import page, plain
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment
from slackwater.model.errors import CheckFailed, UsageError
from slackwater.model.names import UNPREFIXED
from slackwater.model.records import Heartbeat
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.datadir import DataDirectory, Life
from slackwater.runtime.service.parts import FAILED_AT, FAILURES
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.overview import ControllerRow, FragmentRow, Overview
from slackwater.status.processes import CRASHED_US, LATE_US, ObservedHeartbeat, Picture, look_at

S = 1_000_000
NOW = 1_000 * S
ALL = ("proxy/s", "orderer/q.0.a", "orderer/q.0.b", "aggregator/0", "aggregator/1", "root/q.0")
QUERIES = {"q": QueryDefinition("q", 0, 0, 100_000, query("q", "s"))}
SEGFAULT = Life(
    restarts=7,
    last_exit="SIGSEGV",
    last_exit_at_us=NOW - 3 * S,
    last_error="Fatal Python error: Segmentation fault",
)


def beat(process: str, **detail: int) -> Heartbeat:
    return Heartbeat(process, 7, NOW - 90 * S, NOW, 0, True, {}, (), detail)


def latest(*beats: Heartbeat, without: tuple[str, ...] = ()) -> dict[str, ObservedHeartbeat]:
    """Return all processes of q, with these heartbeats, else ready."""
    reported = {name: beat(name) for name in ALL if name not in without} | {
        b.process: b for b in beats
    }
    return {name: ObservedHeartbeat(each, 100.0) for name, each in reported.items()}


def look(
    *beats: Heartbeat, without: tuple[str, ...] = (), lives: Mapping[str, Life] | None = None
) -> Picture:
    return look_at(latest(*beats, without=without), QUERIES, lives, NOW)


def state(picture: Picture, process: str) -> str:
    return next(row.state for row in picture.rows if row.process == process)


def line(picture: Picture, process: str) -> str:
    return next(row.line(NOW) for row in picture.rows if row.process == process)


def test_all_that_should_run_runs() -> None:
    picture = look()
    assert [row.process for row in picture.rows] == list(ALL)
    assert picture.wrong == []
    assert "ready" in line(picture, "root/q.0")
    assert " up 90s" in line(picture, "root/q.0")


def test_a_notifier_is_shown_with_receivers_that_do_not_get_what_there_is() -> None:
    figures = {"sent": 4, "waiting": 12, "failures": 3, "behind_ms": 40_000}
    detail = {f"receiver.webhook.{name}": n for name, n in figures.items()}
    detail |= {f"receiver.alertmanager.{name}": 0 for name in figures}
    states = {"webhook": "answered 503", "alertmanager": "delivers"}
    failing = replace(beat("notifier", **detail), states=states)
    picture = look(failing)
    text = "webhook: 12 alerts wait, for 40 s, 3 failures: answered 503"
    assert f"alertmanager=delivers  {text}" in line(picture, "notifier")
    assert next(r.trouble(NOW) for r in picture.rows if r.process == "notifier") == text
    assert picture.wrong == [], "the deployment is well"
    gone = look(lives=dict.fromkeys((*ALL, "notifier"), Life()))
    assert gone.wrong == ["not working: notifier"], "it was started with --notify"


def test_a_fragment_whose_turns_are_too_long_is_shown_with_its_place() -> None:
    held = beat("root/q.0", long_turn_ms=210)
    moved = beat("orderer/q.0.a", own_host=1)
    picture = look(held, moved)
    assert line(picture, "root/q.0").endswith("long_turn_ms=210  held back: turns are too long")
    reported = "in a host of its own: turns were too long"
    assert line(picture, "orderer/q.0.a").endswith(reported)
    assert "too long" not in line(picture, "orderer/q.0.b")


def test_a_fragment_that_kept_too_much_is_shown_with_the_amount() -> None:
    kept = beat("orderer/q.0.a", held_bytes=48 << 20, held_bytes_max=32 << 20)
    reported = " restarted: kept 48.0 MiB of an input in memory, limit 32.0 MiB"
    assert line(look(kept), "orderer/q.0.a").endswith(reported)
    assert "restarted" not in line(look(kept), "orderer/q.0.b")


def test_a_host_is_shown_by_its_fragments_also_while_it_has_none() -> None:
    picture = look(beat("host/new-1"), lives={"host/new-1": Life()})
    assert [row.process for row in picture.rows] == list(ALL)
    assert picture.wrong == []


@pytest.mark.parametrize("process", ALL)
def test_a_process_without_heartbeats_is_missing_by_name(process: str) -> None:
    picture = look(without=(process,))
    assert state(picture, process) == "missing"
    assert picture.wrong == [f"not working: {process}"]


def test_one_that_fell_silent_while_it_was_watched_is_not_at_work() -> None:
    reported = latest() | {"root/q.0": ObservedHeartbeat(beat("root/q.0"), 2_100.0)}
    picture = look_at(reported, QUERIES, None, NOW)
    assert state(picture, "root/q.0") == "silent for 2.1 s"
    assert picture.wrong == ["not working: root/q.0"]


def test_a_proxy_that_a_segfault_ends_repeatedly_is_shown_with_its_error() -> None:
    picture = look(without=("proxy/s",), lives={"proxy/s": SEGFAULT})
    reported = line(picture, "proxy/s")
    assert reported.startswith("proxy/s ")
    assert "missing" in reported
    assert "restarts=7 last exit SIGSEGV 3s ago: Fatal Python error: Segmentation fault" in reported
    assert picture.wrong == ["not working: proxy/s"]


def test_one_that_crashes_before_it_is_ready_is_not_working_despite_heartbeats() -> None:
    starting = replace(beat("proxy/s"), ready=False)
    assert look(starting, lives={"proxy/s": SEGFAULT}).wrong == ["not working: proxy/s"]
    first = replace_life(SEGFAULT, restarts=1)
    assert look(starting, lives={"proxy/s": first}).wrong == [], "one restart is the normal path"
    old = replace_life(SEGFAULT, last_exit_at_us=NOW - CRASHED_US)
    assert look(starting, lives={"proxy/s": old}).wrong == []
    assert look(starting).wrong == [], "a start may take long"


def test_a_root_that_is_not_ready_is_no_success() -> None:
    """Nothing answers the query then, whatever the reason: exit code 1, unlike a starting proxy."""
    root, proxy = (replace(beat(name), ready=False) for name in ("root/q.0", "proxy/s"))
    assert look(root).wrong == ["not ready: root/q.0, of q"]
    assert look(proxy).wrong == []
    one, other = (replace(beat(f"orderer/q.0.{r}"), ready=False) for r in "ab")
    assert look(one).wrong == [], "the other copy is ready"
    assert look(one, other).wrong == ["not ready: orderer/q.0.a, orderer/q.0.b, of q"]
    assert look(root, without=("root/q.0",)).wrong == ["not ready: root/q.0, of q"]


def test_a_stream_that_fails_again_and_again_is_not_at_work_though_its_process_is() -> None:
    failing = replace(beat("proxy/s"), ready=False, detail={FAILURES: 2, FAILED_AT: NOW - S})
    assert look(failing, lives={"proxy/s": Life()}).wrong == ["not working: proxy/s"]
    assert look(replace(failing, ready=True)).wrong == []
    once = replace(failing, detail={FAILURES: 1, FAILED_AT: NOW - S})
    assert look(once).wrong == [], "one failure is the normal path"
    old = replace(failing, detail={FAILURES: 2, FAILED_AT: NOW - CRASHED_US})
    assert look(old).wrong == []


def replace_life(life: Life, **changes: Any) -> Life:
    return life.model_copy(update=changes)


def test_a_supervisor_lists_processes_that_no_query_needs() -> None:
    picture = look(lives={"proxy/unread": Life(), "broker": Life()})
    assert state(picture, "proxy/unread") == "missing"
    assert [row.process for row in picture.rows].count("broker") == 0


def test_each_proxy_of_a_stream_with_several_is_missed_while_one_runs() -> None:
    """The registry has no streams; a proxy's heartbeat states how many its stream has."""
    picture = look(beat("proxy/room", proxies=3), beat("proxy/room.1", proxies=3))
    assert state(picture, "proxy/room.2") == "missing"
    assert state(picture, "proxy/room.1") == state(picture, "proxy/room")
    stale = {"proxy/room.1": ObservedHeartbeat(beat("proxy/room.1", proxies=2), 9e3)}
    assert not look_at(latest() | stale, QUERIES, None, NOW).wrong, "now there is one proxy"


def test_an_unexpected_process_is_shown_and_never_missing() -> None:
    picture = look(beat("exporter/0"))
    assert state(picture, "exporter/0") == "ready"
    gone = look_at(
        latest() | {"exporter/0": ObservedHeartbeat(beat("exporter/0"), 9e3)}, QUERIES, None, NOW
    )
    assert gone.wrong == []


LATE = {"beyond_bound": 12, "beyond_bound_at": NOW - S, "overdue_ms": 3_200}


def why(*beats: Heartbeat, without: tuple[str, ...] = (), **detail: int) -> str:
    picture = look(beat("root/q.0", **(LATE | detail)), *beats, without=without)
    return picture.late["q"]


def test_a_query_that_answers_beyond_its_bound_is_overloaded_by_name() -> None:
    picture = look(beat("root/q.0", **LATE))
    assert picture.late["q"].startswith(
        "OVERLOADED: the next answer exceeds its bound by 3.2 s; 12 first answers were late"
    )
    assert picture.wrong[0].startswith("query q is OVERLOADED")


def test_lateness_that_is_over_is_no_overload() -> None:
    over = {"beyond_bound": 12, "beyond_bound_at": NOW - LATE_US - 1, "overdue_ms": 0}
    assert look(beat("root/q.0", **over)).wrong == []
    just = over | {"beyond_bound_at": NOW - LATE_US}
    assert look(beat("root/q.0", **just)).late["q"].startswith("OVERLOADED: 12 first answers")


def test_the_reason_is_the_process_that_is_out_of_cpu() -> None:
    starved = beat("aggregator/0", cpu_ms_per_s=20, cpu_wait_ms_per_s=4_000)
    complete = beat("orderer/q.0.a", cpu_ms_per_s=980, cpu_wait_ms_per_s=0)
    reported = why(starved, complete)
    assert "aggregator/0 used 2% of a core and waited for one 4.0 s a second" in reported
    assert "orderer/q.0.a used 98% of a core" in reported
    other = beat("orderer/other.0.a", cpu_ms_per_s=990, cpu_wait_ms_per_s=0)
    assert "other" not in why(other), "another query's"
    assert "aggregator" not in why(beat("aggregator/0", cpu_ms_per_s=1_500, cpu_wait_ms_per_s=9))


def test_the_reason_is_a_broker_that_takes_long() -> None:
    assert "the broker takes 1.8 s for a transaction of root/q.0" in why(commit_ms=1_800)
    assert "broker" not in why(commit_ms=20)


def test_the_reason_is_the_stage_that_is_behind() -> None:
    """The next window without an answer ends at event time 41 s."""
    past = beat("orderer/q.0.a", live_to=0, stable_to=45 * S)
    assert "the orderers are 4.0 s ahead of it: aggregators or root are too slow" in why(
        past, answered_to=40 * S
    )
    short = beat("orderer/q.0.a", live_to=39 * S, stable_to=30 * S)
    assert "the orderers are 2.0 s behind it: they or the proxies are too slow" in why(
        short, answered_to=40 * S
    )
    started = beat("orderer/q.0.a", live_to=0, stable_to=0)
    assert "orderers" not in why(started, answered_to=40 * S), "it has not come anywhere yet"


def test_status_names_the_query_that_has_not_taken_in_a_partition() -> None:
    """Replicas tell of the same ones, and each child of others."""
    orderers = [beat(f"orderer/q.{of}", **{"withheld.s": 1}) for of in ("0.a", "0.b", "1.a")]
    lines = plain(page(look(*orderers), None, NOW, "here:9092", verbose=False)).splitlines()
    (found,) = [line for line in lines if "has not taken in" in line]
    assert (
        "query q has not taken in 2 added partitions (partitions: fixed, or not named in children):"
        " slackwater query apply" in found
    )


def test_without_any_copy_of_a_stage_a_late_query_is_not_overloaded() -> None:
    reported = why(without=("aggregator/0", "aggregator/1"))
    assert reported.startswith("LATE: ")
    assert reported.endswith("aggregator/0, aggregator/1 is missing")
    assert why(without=("aggregator/0",)).startswith("OVERLOADED: "), "the other copy is running"


def test_status_names_the_query_with_lost_readings() -> None:
    queries = {
        name: QueryDefinition(name, 0, 0, 100_000, query(name, "s", parts=parts))
        for name, parts in (("my.g1", 2), ("whole", 1))
    }
    gaps = {"root/my.g1.0": 2, "root/my.g1.1": 1, "root/whole.0": 0}
    beats = [beat(name, gaps=n) for name, n in gaps.items()]
    picture = look_at({b.process: ObservedHeartbeat(b, 0.0) for b in beats}, queries, None, NOW)
    reported = plain(page(picture, None, NOW, "h:1", verbose=False))
    assert "query my.g1: 3 windows lack readings that are lost; to list them:" in reported
    assert "slackwater results my.g1 --kind gap" in reported
    assert "whole: " not in reported


def test_json_has_a_process_that_is_missing_too() -> None:
    rows = json.loads(_as_json(look(without=("proxy/s",), lives={"proxy/s": SEGFAULT})))
    proxy = next(row for row in rows if row["process"] == "proxy/s")
    assert proxy | {"age_ms": 0} == {
        "process": "proxy/s", "ready": False, "state": "missing", "failing": True, "pid": None,
        "age_ms": 0, "up_s": None, "inc": None, "states": {}, "holes": [], "detail": {},
        "restarts": 7, "last_exit": "SIGSEGV", "last_error": SEGFAULT.last_error, "shared_by": [],
    }  # fmt: skip
    root = next(row for row in rows if row["process"] == "root/q.0")
    assert (root["ready"], root["pid"], root["age_ms"], root["up_s"]) == (True, 7, 100, 90.0)
    assert root["restarts"] is None, "the supervisor has no record of it"


class Looking:
    """Stands for the listener: pictures from a list, then Ctrl-C."""

    def __init__(self, *pictures: Picture) -> None:
        self._pictures = pictures

    def __call__(self, *_: object) -> Looking:
        return self

    def __enter__(self) -> Looking:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pictures(self) -> Any:
        yield from self._pictures
        raise KeyboardInterrupt


@pytest.fixture
def directory(tmp_path: Any) -> Any:
    return tmp_path


def test_status_looks_once_and_fails_for_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], directory: Any
) -> None:
    monkeypatch.setattr(show, "_Looking", Looking(look(without=("root/q.0",)), look()))
    with pytest.raises(CheckFailed, match=r"not working: root/q\.0"):
        print_status(Cluster("h:1"), UNPREFIXED, directory, "table", watch=False)
    assert "missing" in capsys.readouterr().out
    assert CheckFailed.exit_code == 1


def test_watching_shows_each_look_and_ends_with_the_verdict_of_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], directory: Any
) -> None:
    monkeypatch.setattr(show, "_Looking", Looking(look(without=("root/q.0",)), look()))
    print_status(Cluster("h:1"), UNPREFIXED, directory, "table", watch=True)
    shown = capsys.readouterr().out
    assert (shown.count("NOT WELL at "), shown.count("all runs at ")) == (1, 1)
    monkeypatch.setattr(show, "_Looking", Looking(look(), look(beat("root/q.0", **LATE))))
    with pytest.raises(CheckFailed, match="OVERLOADED"):
        print_status(Cluster("h:1"), UNPREFIXED, directory, "table", watch=True)


class FakeControls(Controls):
    """Stands for connections to controllers: one overview after the other."""

    def __init__(self, *overviews: Overview) -> None:
        super().__init__()
        self._overviews = iter(overviews)

    def look(self) -> Overview | None:
        return next(self._overviews)


RUNS = FragmentRow("root/q.0", "n1", "ready")
WAITS = FragmentRow("root/q.0", "n1", "not ready", "not ready on n1")
CONTROLLER = ControllerRow("h:1", "a", 4, ("a",))


def test_what_controllers_say_is_shown_and_the_last_look_decides(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], directory: Any
) -> None:
    def status(*rows: FragmentRow, format_: str = "table") -> str:
        monkeypatch.setattr(show, "_Looking", Looking(*(look() for _ in rows)))
        controls = FakeControls(*(Overview((CONTROLLER,), fragments=(row,)) for row in rows))
        arguments = (Cluster("h:1"), UNPREFIXED, directory, format_)
        print_status(*arguments, watch=len(rows) > 1, verbose=True, controls=controls)
        return capsys.readouterr().out

    assert status(WAITS, RUNS).count("a (view 4)") == 2
    with pytest.raises(CheckFailed, match=r"^not ready on n1: root/q\.0$"):
        status(RUNS, WAITS)
    capsys.readouterr()
    shown = json.loads(status(RUNS, format_="json"))
    assert shown["fragments"] == [{"fragment": "root/q.0", "node": "n1", "state": "ready"}]
    assert [row["process"] for row in shown["processes"]] == [*ALL]


def test_without_options_the_controller_is_that_of_the_running_up(directory: Any) -> None:
    def find() -> Reach | None:
        return find_controllers(None, None, None, directory, Cluster("h:1"))

    assert find() is None
    held = DataDirectory(directory)
    held.acquire()
    try:
        held.write_run("h:2", directory / "d.yaml", {"root/q.0": 1})
        assert find() is None, "it is another deployment's"
        held.write_run("h:1", directory / "d.yaml", {"root/q.0": 1})
        with Controls(find()) as controls:
            overview = controls.look()
        assert overview is not None
        (line,) = overview.lines()
        assert "none answers: that of `slackwater up`: it starts, or has failed" in line
        (directory / "controller").mkdir()
        (directory / "controller/address").write_text("127.0.0.1:7\n")
        (directory / "controller/secret").write_text("s" * 16)
        reach = find()
        assert reach is not None
        assert (str(reach.addresses[0]), reach.has_nodes) == ("127.0.0.1:7", False)
    finally:
        held.release()
    assert find() is None, "it has ended"
    with pytest.raises(UsageError, match="--secret-file needs --controllers"):
        find_controllers(None, directory / "s", None, directory, Cluster("h:1"))


def test_an_unknown_format_is_refused(directory: Any) -> None:
    with pytest.raises(UsageError, match="choose table or json"):
        print_status(Cluster("h:1"), UNPREFIXED, directory, "xml", watch=False)


def test_ages_are_short() -> None:
    ages = {30: "30s", 119: "119s", 120: "2m", 7_200: "2h", 200_000: "2d"}
    for seconds, shown in ages.items():
        old = replace(beat("root/q.0"), started_at=NOW - seconds * S)
        assert f" up {shown} " in line(look(old), "root/q.0") + " "


def test_orderers_and_roots_of_queries_that_share_name_the_queries() -> None:
    file = Deployment(
        "wall",
        {"s": stream("s")},
        {name: query(name, "s") for name in ("q", "r", "t", "u")},
    )
    specs = share(file).queries.values()
    queries = {spec.name: QueryDefinition(spec.name, 0, 0, 100_000, spec) for spec in specs}
    picture = look_at(latest(beat("root/r.0")), queries, None, NOW)
    reported = " children shared by q, r, t and 1 more"
    for name in ("orderer/q.0.a", "orderer/q.0.b", "root/q.0", "root/r.0", "root/u.0"):
        assert line(picture, name).endswith(reported), name
    for name in ("proxy/s", "aggregator/0"):
        assert "shared" not in line(picture, name), name
    rows = {row["process"]: row["shared_by"] for row in json.loads(_as_json(picture))}
    assert rows["root/r.0"] == ["q", "r", "t", "u"]
    assert rows["proxy/s"] == []
    # Of a group, the others may not be registered yet.
    alone = look_at(latest(), {"q": queries["q"]}, None, NOW)
    assert "shared" not in line(alone, "root/q.0")


def test_the_gateway_is_judged_by_what_its_supervisor_knows() -> None:
    def seen(life: Life, **pids: int) -> Picture:
        return look_at(
            latest(), QUERIES, dict.fromkeys(ALL, Life()) | {"gateway": life}, NOW, None, pids
        )

    runs = seen(Life(), gateway=7)
    assert (state(runs, "gateway"), runs.wrong) == ("ready", [])
    assert next(row.to_json() for row in runs.rows if row.process == "gateway")["ready"]
    gone = seen(Life())
    assert (state(gone, "gateway"), gone.wrong) == ("missing", ["not working: gateway"])
    crashes = Life(restarts=2, last_exit="code 3", last_exit_at_us=NOW - 3 * S)
    assert seen(crashes, gateway=7).wrong == ["not working: gateway"]
    once = Life(restarts=1, last_exit="SIGKILL", last_exit_at_us=NOW - 3 * S)
    assert seen(once, gateway=7).wrong == []
    assert "restarts=1 last exit SIGKILL 3s ago" in line(seen(once, gateway=7), "gateway")
