"""``slackwater backfill``: the deployment that it runs, and its progress."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.waiting import eventually

from slackwater.cli import backfill, backfill_progress
from slackwater.cli.backfill import BackfillOptions, _Backfill, _chosen, run_backfill
from slackwater.cli.backfill_inputs import BackfillInputs, in_order, parse_inputs
from slackwater.cli.backfill_progress import BackfillBar, Backfilled, lines_in
from slackwater.deployment.parse import parse_deployment
from slackwater.machine.starting import READY, STAGES
from slackwater.model.errors import SlackwaterError, UsageError
from slackwater.proxy.sensors import inbox_of
from slackwater.runtime.service.clock import SystemClock

FILE = """\
apiVersion: slackwater/v1
clock: wall
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], ahead: 5s}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
  live: {topic: {name: in, format: json}, key: {field: k}, time: {field: t, unit: s}, fields: [x],
         sporadic: true}
queries:
  hours: {from: [a], window: {size: 1h}, aggregate: [count], bound: 2s}
  days:
    {from: [hours, b], window: {size: 1d}, aggregate: [sum], bound: 4s, replicas: 2,
     policy: {failure: delay}}
  lives: {from: [live], window: {size: 1h}, aggregate: [count], bound: 2s}
"""


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    (tmp_path / "d.yaml").write_text(FILE)
    (tmp_path / "x.csv").write_text("k,t,x\nn,1,2\n")
    return tmp_path / "d.yaml"


def options(file: Path, query: str, *streams: str) -> BackfillOptions:
    files = {name: (file.parent / "x.csv",) for name in streams if "=" not in name}
    topics = frozenset(name.partition("=")[0] for name in streams if "=" in name)
    return BackfillOptions(file, query, BackfillInputs(files, topics), file.parent / "out.jsonl")


def test_the_query_and_what_it_reads_follow_the_data_with_one_replica_each(file: Path) -> None:
    content, _ = _chosen(options(file, "days", "a", "b"))
    found = parse_deployment(content, "copy.yaml").deployment
    assert found.clock == "data"
    assert set(found.queries) == {"hours", "days"}
    assert set(found.streams) == {"a", "b"}
    assert {query.replicas for query in found.queries.values()} == {1}
    assert {query.bound_us for query in found.queries.values()} == {3_600_000_000}
    given = parse_deployment(FILE, "d.yaml").deployment
    for name, query in found.queries.items():
        assert query.window == given.queries[name].window
        assert query.aggregate == given.queries[name].aggregate


@pytest.mark.parametrize(
    ("query", "streams", "reason"),
    [
        ("weeks", ("a",), "there is no query weeks, only hours, days, lives"),
        ("days", ("a",), "query days reads b: add --from b=FILE"),
        ("hours", ("a", "b"), "query hours does not read stream b"),
        ("lives", ("live",), "stream live is fed by topic in: write --from live=beginning"),
        ("lives", (), "query lives reads live: add --from live=beginning"),
        ("hours", ("a=beginning",), "stream a reads no topic: write --from a=FILE"),
        ("hours", ("c",), "there is no stream c"),
    ],
)
def test_a_query_and_files_that_do_not_fit_are_refused(
    file: Path, query: str, streams: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        run_backfill(options(file, query, *streams))


def test_files_and_folders_are_checked_before_anything_starts(file: Path, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,x\nn,2\n")
    with pytest.raises(SlackwaterError, match="t"):
        run_backfill(options(file, "hours", "a"))
    (tmp_path / "x.csv").write_text("k,t,x\nn,1,2\n")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "run.json").write_text("{}")
    given = options(file, "hours", "a")
    with pytest.raises(UsageError, match="another run"):
        run_backfill(replace(given, data_dir=tmp_path / "used"))
    with pytest.raises(UsageError, match="there is no directory"):
        run_backfill(replace(given, out=tmp_path / "no" / "o.jsonl"))
    with pytest.raises(UsageError, match="add --from STREAM=beginning, or leave them out"):
        run_backfill(replace(given, bootstrap="127.0.0.1:9092"))


def test_a_topic_is_read_from_its_beginning_beside_a_deployment_that_runs(file: Path) -> None:
    text = FILE.replace(
        "{name: in, format: json}",
        "{name: in, format: avro, schemas: s, proxies: 3, from: end,"
        " registry: {url: 'http://r', credentials: c}}",
    )
    file.write_text(f"prefix: plant-7.\n{text}")
    content, _ = _chosen(options(file, "lives", "live=beginning"), "backfill-1.")
    found = parse_deployment(content, "elsewhere/copy.yaml").deployment
    assert found.names.prefix == "plant-7.backfill-1."
    topic = found.streams["live"].topic
    assert topic is not None
    assert (topic.from_, topic.proxies) == ("beginning", 1)
    assert topic.registry is not None
    assert [topic.schemas, topic.registry.credentials] == [str(file.parent / f) for f in "sc"]


def test_several_files_of_a_stream_are_named_one_by_one_or_by_a_pattern(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a-2.csv", "a-1.csv", "b[1].csv"):
        (tmp_path / name).touch()
    found = parse_inputs(["a=a-*.csv", "a=x.csv", "b=b[1].csv", "live=beginning"])
    assert found.files == {
        "a": (Path("a-1.csv"), Path("a-2.csv"), Path("x.csv")),
        "b": (Path("b[1].csv"),),
    }
    assert found.streams == ("a", "b", "live")
    assert parse_inputs([f"a={tmp_path}/a-?.csv"]).files["a"][1] == tmp_path / "a-2.csv"
    for wrong, reason in (
        (["a=a-*.csv", "a=a-1.csv"], "a=a-1.csv is given twice"),
        (["a=c-*.csv"], "a=c-.*: no file has such a name"),
        (["a=x.csv", "a=beginning"], "a stream reads a topic or files"),
        (["a"], "write --from STREAM=FILE or STREAM=beginning"),
    ):
        with pytest.raises(UsageError, match=reason):
            parse_inputs(wrong)


def test_files_are_read_in_the_order_of_their_first_readings(file: Path, tmp_path: Path) -> None:
    spec = parse_deployment(FILE, "d.yaml").deployment.streams["a"]
    for name, rows in (("1", "n,9,1\n"), ("2", "n,bad,1\nn,5,1\n"), ("3", ""), ("4", "n,7,1\n")):
        (tmp_path / name).write_text(f"k,t,x\n{rows}")
    found = in_order(spec, [tmp_path / name for name in "1234"])
    assert [path.name for path in found] == ["2", "4", "1", "3"]
    (tmp_path / "4").write_text("k,t\n")
    with pytest.raises(SlackwaterError, match="x"):
        in_order(spec, [tmp_path / name for name in "1234"])


def test_progress_is_the_part_of_the_files_that_is_read_and_answered() -> None:
    seen = Backfilled()
    assert seen.fraction(1_000) is None
    seen.readings, seen.last_us = {"a": 300, "b": 200}, {"a": 900, "b": 1_100}
    assert seen.fraction(1_000) is None, "the query has not begun"
    seen.begin(100, range(2))
    assert seen.fraction(1_000) == 0
    seen.answered_us = {0: 600, 1: 1_000}
    assert seen.fraction(1_000) == 0.25
    assert seen.fraction(None) is None
    seen.readings, seen.answered_us = {"a": 600, "b": 401}, {0: 2_000, 1: 2_000}
    assert seen.fraction(1_000) == 1


def test_lines_are_counted_by_their_size_or_told_by_the_file(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.csv", tmp_path / "a.csv.gz"
    plain.write_text("k,t\n" + "n,123456\n" * 20_000)
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert abs((lines_in(plain) or 0) - 20_001) < 20
    assert lines_in(packed) is None
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"k": range(20_000)}), table)
    assert lines_in(table) == 20_000


def test_a_start_does_not_look_like_a_history_without_windows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now_us = 0
    clock = SystemClock(wall_us=lambda: now_us, monotonic_us=lambda: now_us)
    bar, seen = BackfillBar("hours", 100, clock), Backfilled(readings={"a": 100})
    now_us += 3_000_000
    bar.show(seen, "aggregators (Spark), roots")
    waiting = "100 readings, no answer yet, waiting for aggregators (Spark), roots"
    assert waiting in capsys.readouterr().out
    now_us += 3_000_000
    bar.show(seen)
    assert capsys.readouterr().out.endswith("100 readings, no answer yet\n")
    seen.begin(0, range(1))
    seen.windows[0] = 2
    now_us += 3_000_000
    bar.show(seen)
    assert "100 readings, 2 windows" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["column", "field"])
@pytest.mark.parametrize("file_name", ["x.csv", "x.ndjson"])
def test_a_stream_of_http_is_read_from_files(file: Path, name: str, file_name: str) -> None:
    of_files = "a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], ahead: 5s}"
    posted = of_files.replace("column", name).replace("ahead: 5s", "http: {}, sporadic: true")
    file.write_text("http: {listen: '127.0.0.1:8099'}\n" + FILE.replace(of_files, posted))
    inputs = BackfillInputs({"a": (file.parent / file_name,)})
    content, _ = _chosen(replace(options(file, "hours", "a"), inputs=inputs))
    stream = parse_deployment(content, "copy.yaml").deployment.streams["a"]
    assert stream.http is None
    json = file_name.endswith("json")
    assert (stream.key.field, stream.time.field) == (("k", "t") if json else (None, None))
    assert stream.time.parts == ("t",)


def test_times_of_arrival_are_in_no_file(file: Path) -> None:
    file.write_text(
        FILE.replace(
            "a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], ahead: 5s}",
            "a: {http: {}, key: {field: k}, time: {from: arrival}, fields: [x], sporadic: true}",
        )
    )
    with pytest.raises(UsageError, match="has times of arrival, which a file has not"):
        run_backfill(options(file, "hours", "a"))


def test_a_topic_is_not_checked(file: Path) -> None:
    with pytest.raises(UsageError, match="--check reads files by itself, and no topics"):
        run_backfill(replace(options(file, "lives", "live=beginning"), check=True))


def test_the_file_with_the_oldest_reading_is_read_before_the_others_are_handed_over(
    file: Path, tmp_path: Path
) -> None:
    """Else a query could begin with a reading of another stream, and lack all older ones."""
    (tmp_path / "old.csv").write_text("k,t,x\nn,0,2\n")
    given = options(file, "days", "a", "b")
    files = {"a": (tmp_path / "x.csv",), "b": (tmp_path / "old.csv",)}
    given = replace(given, inputs=BackfillInputs(files))
    copied = parse_deployment(_chosen(given)[0], "copy.yaml").deployment
    waited: list[list[str]] = []

    def latest(process: str) -> SimpleNamespace | None:
        waited.append([name for name in files if any(inbox_of(tmp_path, name).glob("*.json"))])
        is_read = process == "proxy/b" and len(waited) > 4
        return SimpleNamespace(detail={"readings": 1}, at=0) if is_read else None

    stack = SimpleNamespace(listener=SimpleNamespace(latest=latest))
    thread: Any = SimpleNamespace(check=lambda: None, stack=stack, ready=dict)
    bar = BackfillBar("days", None, SystemClock())
    _Backfill(given, {}, thread, tmp_path, copied)._hand_over(bar)
    assert waited == [["b"]] * len(waited)
    assert len(waited) > 4
    assert any(inbox_of(tmp_path, "a").glob("*.json"))


class Starting:
    """A stack whose stages are ready at given seconds; one second passes at each look."""

    ready_at: ClassVar = {"proxy/a": 9, "orderer/hours.0.a": 14, "aggregator/0": 27, "root/h.0": 29}

    def __init__(self, has_printed: Callable[[], bool]) -> None:
        self.now_s = 0
        self.clock = SystemClock(wall_us=self._now_us, monotonic_us=self._now_us)
        listener = SimpleNamespace(latest=lambda process: None)
        self.stack = SimpleNamespace(listener=listener, transport=None)
        self._has_printed = has_printed

    def _now_us(self) -> int:
        return 1_000_000 * self.now_s

    def open(self) -> None:
        self._block()

    def start_up(self) -> None:
        self._block()

    def _block(self) -> None:
        """Block until a line says what is awaited."""
        self.now_s += 3
        eventually(self._has_printed)
        self.now_s += 1

    def check(self) -> None:
        self.now_s += 1

    def ready(self) -> dict[str, bool]:
        return {name: self.now_s >= at for name, at in self.ready_at.items()}


def test_each_stage_of_the_start_is_a_line_and_none_is_awaited_in_silence(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes most of a start, and nothing else is printed meanwhile."""
    printed: list[tuple[int, str]] = []
    stack = Starting(lambda: any(" waiting for " in line for _, line in printed[-1:]))

    def emit(line: str) -> None:
        printed.append((stack.now_s, line))

    class Found(Exception):
        """The query is registered."""

    def queries() -> dict[str, object]:
        if stack.now_s >= 40:
            raise Found
        return {}

    monkeypatch.setattr(backfill, "emit", emit)
    monkeypatch.setattr(backfill_progress, "emit", emit)
    monkeypatch.setattr(backfill, "SystemClock", lambda: stack.clock)
    monkeypatch.setattr(backfill, "Registry", lambda transport: SimpleNamespace(queries=queries))
    monkeypatch.setattr(backfill, "POLL_S", 0)
    given = options(file, "hours", "a")
    copied = parse_deployment(_chosen(given)[0], "copy.yaml").deployment
    with pytest.raises(Found):
        _Backfill(given, {}, cast(Any, stack), tmp_path, copied).run()

    lines = [line for _, line in printed]
    assert [line for line in lines if READY in line] == [
        "ready after  4.0 s: Kafka",
        "ready after  9.0 s: proxies, which write readings to Kafka",
        *(
            f"ready after {at}.0 s: {STAGES[kind]}"
            for at, kind in ((14, "orderer"), (27, "aggregator"), (29, "root"))
        ),
    ]
    assert lines[0] == "  3 s: waiting for Kafka"
    assert any("waiting for aggregators (Spark), roots" in line for line in lines)
    assert lines[-1].endswith("no answer yet"), "the start is over"
    times = [0, *(at for at, _ in printed)]
    assert max(later - before for before, later in pairwise(times)) <= 3


def test_a_stage_whose_heartbeat_is_late_is_ready_when_the_answers_are_there(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stack = Starting(lambda: True)
    given = options(file, "hours", "a")
    copied = parse_deployment(_chosen(given)[0], "copy.yaml").deployment
    run = _Backfill(given, {}, cast(Any, stack), tmp_path, copied)
    run._seen.begin(0, range(2))
    run._seen.answered_us[0] = 5
    run._show(bar := BackfillBar("hours", None, stack.clock))
    assert READY not in capsys.readouterr().out
    run._seen.answered_us[1] = 5
    for _ in range(2):
        run._show(bar)
    assert capsys.readouterr().out.count(READY) == 4
