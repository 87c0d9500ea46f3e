"""The audit on a real broker: source logs with all kinds of records, correct and wrong answers.

The answers are computed here, by a loop over readings, so that the audit is checked by code that is
neither Spark nor the pipeline.
"""

import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from pyspark.sql import SparkSession
from tests.support.waiting import WAIT_S_MAX

from slackwater.codec import encode_source
from slackwater.codec.results import ResultHead, encode_boundary, format_time
from slackwater.model.deployment import (
    Deployment,
    FieldSpec,
    HttpInputSpec,
    KeySpec,
    QuerySpec,
    StreamSpec,
    TimeSpec,
    WindowSpec,
)
from slackwater.model.names import Names
from slackwater.model.records import Kind, SourceColumns, SourceRecord
from slackwater.model.row_fields import OfFields
from slackwater.protocols.dpc.soutput.answers import StableWindow
from slackwater.runtime.logs.incarnation import append_and_wait
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import QueryTopics, ensure_topics, topics_for
from slackwater.runtime.logs.transport import Writer
from slackwater_spark.audit.comparison import AuditReport
from slackwater_spark.audit.job import audit
from slackwater_spark.session import SessionSettings, start_spark

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]

NAN = math.nan
SIZE, SLIDE, START_TIME = 300, 200, 1_000
READINGS_PER_RECORD = 10
Rows = dict[tuple[int, str], dict[str, dict[str, float | None]]]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder: Path = tmp_path_factory.mktemp("audit")
    with start_spark(SessionSettings("audit test", folder / "spark", "local[1]")) as application:
        yield application.session


def stream(name: str, *fields: str) -> StreamSpec:
    return StreamSpec(
        name,
        KeySpec(column="k"),
        TimeSpec(columns=("t",), unit="us"),
        tuple(FieldSpec(field, field) for field in fields),
    )


class Setup:
    """Two streams with different fields, a query over both, and its topics."""

    def __init__(self, bootstrap: str, of_fields: OfFields = (), having: str | None = None) -> None:
        unique = uuid4().hex[:8]
        self.one, self.two, self.name = (f"{x}-{unique}" for x in ("one", "two", "q"))
        self.query = QuerySpec(
            name=self.name,
            sources=(self.one, self.two),
            where="t > -40 or t is null",
            select=(("t", "t * 1.8 + 32"), ("h", "h")),
            window=WindowSpec(SIZE, SLIDE),
            aggregate=("count", "sum", "avg", "min", "max", "range", "var", "stddev"),
            bound_us=2_000_000,
            parts=2,
            of_fields=of_fields,
            having=having,
        )
        streams = {s.name: s for s in (stream(self.one, "t"), stream(self.two, "h", "t"))}
        self.deployment = Deployment("data", streams, {self.name: self.query})
        self.bootstrap = bootstrap
        shape = QueryTopics(self.name, 1, 1, 2)
        ensure_topics(bootstrap, topics_for([self.one, self.two], [shape]), WAIT_S_MAX)
        self.failures: list[str] = []
        self.writer: Writer = KafkaTransport(bootstrap).writer(self.failures.append)

    def source(self, stream_name: str, record: SourceRecord | bytes) -> int:
        value = record if isinstance(record, bytes) else encode_source(record)
        return append_and_wait(self.writer, (Names().source(stream_name), 0), value)

    def answer(self, rows: Rows, end: int) -> None:
        """Write stable answers of all windows that start below ``end``, each key in one part."""
        first = (START_TIME - SIZE) // SLIDE * SLIDE + SLIDE
        for window in range(first, end, SLIDE):
            given = {key: fields for (start, key), fields in rows.items() if start == window}
            for part in (0, 1):
                mine = {k: fields for k, fields in given.items() if ord(k[0]) % 2 == part}
                for key, fields in mine.items():
                    self.row(part, window, key, fields)
                self.boundary(part, window, len(mine))

    def row(self, part: int, window: int, key: str, fields: Any) -> None:
        times = {"window_start": format_time(window), "window_end": format_time(window + SIZE)}
        row = {"query": self.name, "part": part, "seq": 0, "kind": "stable", "epoch": 0} | times
        value = json.dumps(row | {"key": key, "fields": fields, "missing": []}).encode()
        self.writer.append(Names().results(self.name, "stable"), part, value, key.encode())

    def boundary(self, part: int, window: int, keys: int, emitted_at: int = 0) -> None:
        answer: StableWindow[Any] = StableWindow(0, 0, 0, window, window + SIZE, 0, keys, None, ())
        value = encode_boundary(ResultHead(self.name, part), answer, emitted_at)
        append_and_wait(self.writer, (Names().results(self.name, "stable"), part), value)


def readings(seed: int, fields: tuple[str, ...], n: int) -> list[tuple[int, str, dict[str, float]]]:
    rng = np.random.default_rng(seed)
    times = np.sort(rng.integers(START_TIME, START_TIME + 2_000, n))
    return [
        (
            int(t),
            "abc"[rng.integers(3)],
            {f: NAN if rng.random() < 0.1 else float(rng.normal(-20, 30)) for f in fields},
        )
        for t in times
    ]


def record(
    name: str, inc: int, first_id: int, chunk: list[tuple[int, str, dict[str, float]]]
) -> SourceRecord:
    keys = tuple(dict.fromkeys(key for _, key, _ in chunk))
    fields = tuple(chunk[0][2])
    stimes = np.array([t for t, _, _ in chunk], dtype=np.int64)
    return SourceRecord(
        kind=Kind.INSERTION,
        stream=name,
        inc=inc,
        first_id=first_id,
        last_id=first_id + len(chunk) - 1,
        boundary=int(stimes.max()),
        stime_min=int(stimes.min()),
        stime_max=int(stimes.max()),
        columns=SourceColumns(
            stimes,
            np.array([keys.index(key) for _, key, _ in chunk], dtype=np.int32),
            keys,
            fields,
            tuple(np.array([values[f] for _, _, values in chunk]) for f in fields),
        ),
    )


def start(name: str, inc: int, next_id: int) -> SourceRecord:
    never = -(2**62)
    return SourceRecord(Kind.START, name, inc, next_id, next_id - 1, never, never, never, spool="s")


def expected(all_readings: list[tuple[int, str, dict[str, float]]]) -> Rows:
    """Return the answers, computed by a loop."""
    cells: dict[tuple[int, str], dict[str, list[float]]] = defaultdict(lambda: {"t": [], "h": []})
    for stime, key, values in all_readings:
        t, h = values.get("t", NAN), values.get("h", NAN)
        if t <= -40:
            continue
        window = stime // SLIDE * SLIDE
        while window + SIZE > stime:
            cell = cells[window, key]
            cell["t"] += [] if math.isnan(t) else [t * 1.8 + 32]
            cell["h"] += [] if math.isnan(h) else [h]
            window -= SLIDE
    return {
        at: {name: figures(values) for name, values in cell.items()} for at, cell in cells.items()
    }


def figures(values: list[float]) -> dict[str, float | None]:
    n = len(values)
    if not n:
        return {"count": 0} | dict.fromkeys(("sum", "avg", "min", "max", "range", "var", "stddev"))
    mean = math.fsum(values) / n
    var = math.fsum((v - mean) ** 2 for v in values) / (n - 1) if n > 1 else None
    return {
        "count": n,
        "sum": math.fsum(values),
        "avg": mean,
        "min": min(values),
        "max": max(values),
        "range": max(values) - min(values),
        "var": var,
        "stddev": None if var is None else math.sqrt(var),
    }


@pytest.fixture
def stack(bootstrap: str) -> Iterator[Setup]:
    made = Setup(bootstrap)
    yield made
    made.writer.close()
    assert not made.failures


def fill_sources(stack: Setup) -> Rows:
    """Write logs with a restart, repeats, a zombie, a hole and a foreign record."""
    one, two = readings(1, ("t",), 60), readings(2, ("h", "t"), 40)
    ten = READINGS_PER_RECORD
    chunks = [record(stack.one, 0, i, one[i : i + ten]) for i in range(0, 60, ten)]
    inc = stack.source(stack.one, start(stack.one, 0, 0))
    for chunk in (*chunks[:3], chunks[1], chunks[4]):  # a repeat, then a record beyond a hole
        stack.source(stack.one, chunk)
    inc = stack.source(stack.one, start(stack.one, 0, 30))
    zombie = record(stack.one, 0, 30, readings(9, ("t",), ten))
    stack.source(stack.one, zombie)
    stack.source(stack.one, b"not a record")
    for i in range(30, 60, ten):
        stack.source(stack.one, record(stack.one, inc, i, one[i : i + ten]))
    stack.source(stack.two, start(stack.two, 0, 0))
    for i in range(0, 40, ten):
        stack.source(stack.two, record(stack.two, 0, i, two[i : i + ten]))
    return expected(one + two)


END = START_TIME + 1_600


def look(spark: SparkSession, stack: Setup) -> AuditReport:
    report = audit(spark, stack.bootstrap, stack.deployment, stack.query, START_TIME)
    assert report.ok == (report.lost == report.doubled == report.wrong == 0)
    assert report.readings == 100
    assert not report.truncated
    return report


def test_agrees_with_right_answers(spark: SparkSession, stack: Setup) -> None:
    rows = fill_sources(stack)
    stack.answer(rows, END)
    report = look(spark, stack)
    assert (report.ok, report.findings) == (True, ())
    assert report.rows == len([window for window, _ in rows if window < END])


def test_agrees_with_the_aggregates_of_each_field(spark: SparkSession, bootstrap: str) -> None:
    of_fields = (("h", ("max",)), ("t", ("avg", "count")))
    stack = Setup(bootstrap, of_fields)
    given = {
        at: {field: {name: of[field][name] for name in names} for field, names in of_fields}
        for at, of in fill_sources(stack).items()
    }
    stack.answer(given, END)
    report = look(spark, stack)
    assert (report.ok, report.findings) == (True, ())
    assert report.rows == len([window for window, _ in given if window < END])
    stack.writer.close()
    assert not stack.failures


def test_a_condition_on_figures_forbids_rows_and_demands_others(
    spark: SparkSession, bootstrap: str
) -> None:
    stack = Setup(bootstrap, having="t_count >= 3 AND t_avg > 32")
    rows = fill_sources(stack)
    given = {at: of for at, of in rows.items() if (of["t"]["count"] or 0) >= 3}
    kept = {at: of for at, of in given.items() if (of["t"]["avg"] or 0.0) > 32}
    within = [at for at in kept if at[0] < END]
    (dropped, *_) = [at for at in rows if at not in kept and at[0] < END]
    assert len(within) > 3
    stack.answer({at: of for at, of in kept.items() if at != within[0]}, END)
    stack.row(ord(dropped[1]) % 2, *dropped, rows[dropped])
    report = look(spark, stack)
    assert (report.lost, report.wrong, report.doubled) == (1, 1, 0)
    assert report.rows == len(within) + 1
    stack.row(ord(within[0][1]) % 2, *within[0], kept[within[0]])
    report = look(spark, stack)
    assert (report.lost, report.wrong) == (0, 1)
    (finding,) = report.findings
    assert finding == f"{format_time(dropped[0])} {dropped[1]}: a row that does not satisfy having"
    stack.writer.close()
    assert not stack.failures


def test_finds_each_kind_of_wrong_answer(spark: SparkSession, stack: Setup) -> None:
    rows = fill_sources(stack)
    stack.answer(rows, END)
    twice = max(at for at in rows if at[0] < END)
    unknown = (twice[0], "nobody")
    for at in (twice, unknown):
        stack.row(ord(twice[1]) % 2, *at, rows[twice])
    # Two more windows are answered: one without its rows, one with a sum that skips a reading.
    unanswered = [at for at in rows if at[0] == END]
    skipping = (END + SLIDE, "a")
    for at, given in rows.items():
        if at[0] == END + SLIDE:
            figures_of_t = dict(given["t"])
            figures_of_t["sum"] = (figures_of_t["sum"] or 0.0) + (0.001 if at == skipping else 0.0)
            stack.row(ord(at[1]) % 2, *at, given | {"t": figures_of_t})
    for window in (END, END + SLIDE):
        for part in (0, 1):
            stack.boundary(part, window, 0)

    report = look(spark, stack)

    assert (report.lost, report.doubled, report.wrong) == (len(unanswered), 1, 2)
    mistakes = [(twice, "2 rows"), (unknown, "a row without readings"), (skipping, "t.sum is")]
    mistakes += [(at, "no row") for at in unanswered]
    emitted = sorted(f"{format_time(window)} {key}: {what}" for (window, key), what in mistakes)
    assert len(report.findings) == len(emitted)
    for finding, begins in zip(sorted(report.findings), emitted, strict=True):
        assert finding.startswith(begins)


def test_what_not_every_part_has_answered_is_not_judged(spark: SparkSession, stack: Setup) -> None:
    rows = fill_sources(stack)
    report = audit(spark, stack.bootstrap, stack.deployment, stack.query, START_TIME)
    assert (report.ok, report.windows, report.rows) == (True, 0, 0)
    stack.answer(rows, END)
    stack.boundary(0, END, 0)  # one part alone
    report = audit(spark, stack.bootstrap, stack.deployment, stack.query, START_TIME)
    assert (report.ok, report.end_us) == (True, END)


def test_an_answer_before_its_windows_end_is_wrong(spark: SparkSession, stack: Setup) -> None:
    rows = fill_sources(stack)
    stack.answer(rows, END)
    early = max(rows)[0] + SLIDE
    for window in range(END, early, SLIDE):
        for part in (0, 1):
            keys = {key: of for (at, key), of in rows.items() if at == window}
            mine = {key: of for key, of in keys.items() if ord(key[0]) % 2 == part}
            for key, fields in mine.items():
                stack.row(part, window, key, fields)
            stack.boundary(part, window, len(mine))
    for part, emitted in ((0, early + SIZE - 1_250_000), (1, early + SIZE - 900_000)):
        stack.boundary(part, early, 0, emitted)
    live = {
        name: dataclasses.replace(stream, http=HttpInputSpec())
        for name, stream in stack.deployment.streams.items()
    }
    deployment = Deployment("wall", live, stack.deployment.queries)
    report = audit(spark, stack.bootstrap, deployment, stack.query, START_TIME)
    sentence = f"part 0: {format_time(early)} was stable 1.250 s before its end"
    assert (report.wrong, report.findings) == (1, (sentence,))
    report = audit(spark, stack.bootstrap, stack.deployment, stack.query, START_TIME)
    assert report.ok, "the event time of data has no clock"


def test_counts_windows_left_out_and_answered_twice(spark: SparkSession, stack: Setup) -> None:
    rows = fill_sources(stack)
    stack.answer(rows, END)
    for part in (0, 1):
        stack.boundary(part, END - SLIDE, 0)  # again
        stack.boundary(part, END + 5 * SLIDE, 0)  # five windows are skipped
    report = audit(spark, stack.bootstrap, stack.deployment, stack.query, START_TIME)
    assert report.wrong == 2
    passed_over = {at for at in rows if END <= at[0] <= END + 5 * SLIDE}
    assert report.lost == 2 * 5 + len(passed_over)
