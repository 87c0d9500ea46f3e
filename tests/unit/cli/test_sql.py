"""`slackwater sql` against a controller that is a value, and without one."""

from __future__ import annotations

import asyncio
import copy
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from tests.unit.cli.test_query_changes import Controller, nodes
from tests.unit.sql.test_damaged import damaged
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.cli.controls import Reach
from slackwater.cli.statements.output import RowOutput
from slackwater.cli.statements.results import changed_rows, check_select, exact_rows
from slackwater.cli.statements.run import StatementRunner
from slackwater.cli.statements.running import RunningDeployment, Surroundings
from slackwater.control.admission import why_refused_on_nodes
from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_object import ApplyQuery, DeleteQuery
from slackwater.deployment.parse import parse_deployment
from slackwater.model.errors import DeploymentError, EnvironmentProblem, UsageError
from slackwater.model.names import Names
from slackwater.sql.parser import parse
from slackwater.sql.statements import Select

STREAM = (
    "CREATE STREAM lab WITH (key = (column = 'k'), time = (column = 't', unit = 's'),"
    " fields = ['x', 'y'], disorder = '1s');\n"
)
AVERAGES = (
    "QUERY averages AS SELECT count(x), avg(x) FROM TUMBLE(TABLE lab, INTERVAL '1' MINUTE)"
    " GROUP BY window_start, key EMIT WITHIN INTERVAL '5' SECOND"
)
READINGS = "CREATE QUERY readings AS SELECT * FROM lab EMIT WITHIN INTERVAL '2' SECOND"


def never() -> Any:
    raise AssertionError("Kafka is not asked")


class Session:
    """Runs texts against one controller."""

    def __init__(
        self, controller: Controller | None = None, format_: str = "table", **options: Any
    ) -> None:
        self.controller = nodes() if controller is None else controller
        where = Surroundings(
            reach=lambda: cast(Reach, self.controller),
            cluster=never,
            names=Names,
            registry=None,
            data_dir=Path(),
        )
        self.runner = StatementRunner(where, RowOutput(format_), **options)

    def run(self, text: str) -> None:
        self.runner.run(text, "t.sql")

    def failure(self, text: str) -> str:
        requested = len(self.controller.requested)
        with pytest.raises(DeploymentError) as error:
            self.run(text)
        assert len(self.controller.requested) == requested, "nothing is run"
        return error.value.message

    def outcome(self, text: str) -> str | None:
        """Run a text; return its errors."""
        try:
            self.run(text)
        except DeploymentError as error:
            return error.message
        return None

    @property
    def live(self) -> tuple[str, ...]:
        return self.controller.object.state.live_queries()


@pytest.fixture(name="session")
def _session(capsys: pytest.CaptureFixture[str]) -> Session:
    session = Session()
    session.run(f"{STREAM}CREATE {AVERAGES};")
    capsys.readouterr()
    return session


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_queries_are_created_changed_paused_resumed_and_dropped(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run(f"{READINGS}; PAUSE QUERY readings; RESUME QUERY readings;")
    assert session.live == ("averages", "readings")
    session.run(f"CREATE OR REPLACE {AVERAGES}")
    session.run(f"CREATE OR REPLACE {AVERAGES.replace('5', '4')};")
    session.run("DROP QUERY readings")
    shown = capsys.readouterr().out.splitlines()
    assert shown[:3] == [
        "query readings is accepted",
        "query readings is paused; RESUME QUERY continues it",
        "query readings is resumed",
    ]
    assert shown[3] == "query averages runs already"
    assert shown[4].startswith("query averages is changed: generation 1 is accepted")
    assert shown[5] == "query readings is deleted; its results stay in their topics"
    assert session.live == ("averages", "averages.g1")


@pytest.mark.parametrize("format_", ["jsonl", "csv"])
def test_sentences_do_not_mix_with_rows_for_programs(
    format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(format_=format_)
    session.run(f"{STREAM}CREATE {AVERAGES}; PAUSE QUERY averages; SHOW QUERIES")
    shown = capsys.readouterr()
    assert "query averages is accepted" in shown.err
    assert "query averages is paused" in shown.err
    # A row for each statement and for the query, and in CSV the header of each table.
    assert len(shown.out.splitlines()) == (4 if format_ == "jsonl" else 7)


def test_programs_read_what_became_of_each_statement(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(format_="jsonl")
    alert = "CREATE ALERT high WITH (query = 'averages', when = 'x_avg > 3');"

    def outcomes(text: str) -> list[tuple[str, str, str, int | None]]:
        session.run(text)
        of = ("statement", "name", "status", "generation")
        found = rows(capsys.readouterr().out)
        return [(row[of[0]], row[of[1]], row[of[2]], row[of[3]]) for row in found]

    assert outcomes(f"{STREAM}CREATE {AVERAGES};") == [
        ("CREATE STREAM", "lab", "accepted", None),
        ("CREATE QUERY", "averages", "accepted", 0),
    ]
    assert outcomes(f"CREATE OR REPLACE {AVERAGES}") == [
        ("CREATE QUERY", "averages", "unchanged", 0)
    ]
    assert outcomes(alert) == [("CREATE ALERT", "high", "accepted", 1)]
    asyncio.run(session.controller.request(DeleteQuery("averages")))
    assert outcomes("DROP ALERT high") == [("DROP ALERT", "high", "accepted", 2)]
    asyncio.run(session.controller.request(DeleteQuery("averages.g1")))
    assert outcomes("PAUSE QUERY averages; RESUME QUERY averages; DROP QUERY averages") == [
        ("PAUSE QUERY", "averages", "paused", 2),
        ("RESUME QUERY", "averages", "resumed", 2),
        ("DROP QUERY", "averages", "deleted", 2),
    ]


def test_a_stream_that_no_query_reads_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(format_="csv", keeps_streams=True)
    session.run(STREAM)
    assert capsys.readouterr().out.splitlines() == [
        "statement,name,status,generation",
        "CREATE STREAM,lab,kept,",
    ]


def test_what_is_applied_is_what_a_file_applies(session: Session) -> None:
    text = """\
apiVersion: slackwater/v1
streams:
  lab: {key: {column: k}, time: {column: t, unit: s}, fields: [x, y], disorder: 1s}
queries:
  averages:
    {from: [lab], select: {x: x}, window: {size: 1m}, aggregate: [count, avg], bound: 5s}
"""
    running = RunningDeployment.of(session.controller.object.state)
    assert running.deployment == parse_deployment(text, "d.yaml").deployment


@pytest.mark.parametrize("site", [None, "north"])
def test_queries_at_sites_are_read_and_not_written(
    site: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """\
apiVersion: slackwater/v1
sites: {north: {centre: "kafka:9092"}}
streams:
  mill: {site: north, key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 1s,
         expect_every: 1s, topic: {name: mill, format: json}}
queries:
  averages: {from: [mill], window: {size: 1m}, aggregate: [avg], bound: 5s, children: sites,
             mergers: 2}
"""
    text = text.replace("column", "field")
    deployment = parse_deployment(text, "d.yaml", site=site).deployment
    session = Session()
    applied = ApplyQuery("averages", to_text(AppliedQuery("averages", deployment)))
    asyncio.run(session.controller.request(applied))
    for statement in ("SHOW CREATE QUERY averages", STREAM, "DROP ALERT hot"):
        assert "SQL has no words for sites with a Kafka" in session.failure(statement)
    session.run("SHOW QUERIES; PAUSE QUERY averages")
    assert "averages" in capsys.readouterr().out


def test_streams_of_the_file_that_no_query_reads_yet_are_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`slackwater up` runs their proxies; the record has the streams of queries only."""
    file = parse_deployment(
        """\
apiVersion: slackwater/v1
http: {listen: "127.0.0.1:9100"}
streams:
  lab: {key: {column: k}, time: {column: t, unit: s}, fields: [other]}
  gate: {http: {}, key: {field: d}, time: {field: t, unit: ms}, fields: [watts], sporadic: true}
queries:
  q: {from: [lab], bound: 2s}
""",
        "d.yaml",
    ).deployment
    session = Session()
    session.run(f"{STREAM}CREATE {AVERAGES};")
    where = replace(session.runner._where, file=lambda: file)
    session.runner = StatementRunner(where, RowOutput("table"))
    session.run("SHOW STREAMS; DESCRIBE gate")
    shown = capsys.readouterr().out
    assert "gate" in shown
    assert "watts" in shown
    session.run("CREATE QUERY posted AS SELECT * FROM gate EMIT WITHIN INTERVAL '2' SECOND")
    recorded = RunningDeployment.of(session.controller.object.state).deployment
    assert recorded.streams["gate"] == file.streams["gate"]
    assert recorded.http == file.http
    assert recorded.streams["lab"] != file.streams["lab"], "a stream that is read stays as it is"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"CREATE QUERY ^{AVERAGES[6:]}", "query averages is there: CREATE OR REPLACE QUERY"),
        ("DROP QUERY ^average", "there is no query 'average', only averages; did you mean"),
        ("DROP QUERY averages; PAUSE QUERY ^averages", "there is no query 'averages'"),
        ("DESCRIBE ^lap", "there is no stream or query 'lap', only averages"),
        ("SHOW CREATE STREAM ^lap", "there is no stream 'lap', only lab; did you mean 'lab'?"),
        ("SELECT x_avg, ^x_max FROM averages", "averages has no column 'x_max', only window_start"),
        ("SELECT * FROM averages WHERE ^x > 3", "no field 'x', only x_count, x_avg, window_start"),
        ("SELECT * FROM ^nothing", "there is no query 'nothing', only averages"),
        (f"CREATE STREAM ^b{STREAM[17:]}", "no query reads stream b: create one in the same text"),
        (
            STREAM.replace("'1s'", "'2s'").replace("lab", "^lab"),
            "stream lab is read with another declaration, which stays",
        ),
        ("SET ^clock = 'data'", "clock of a running deployment stays as it was started"),
        (
            "CREATE QUERY q AS SELECT ^z FROM lab EMIT WITHIN INTERVAL '2' SECOND",
            "query q, SELECT.z: 'z': there is no field 'z', only x, y, key",
        ),
        (
            "EXPLAIN CREATE QUERY q AS SELECT ^z FROM lab EMIT WITHIN INTERVAL '2' SECOND",
            "there is no field 'z', only x, y, key",
        ),
        (
            "CREATE QUERY q AS SELECT x FROM averages EMIT WITHIN ^INTERVAL '2' SECOND".replace(
                "SELECT x FROM", "SELECT x_avg FROM"
            ).replace("'2'", "'0.1'"),
            "query q, EMIT WITHIN: 100ms cannot be kept",
        ),
    ],
)  # fmt: skip
def test_an_error_has_its_place_and_nothing_is_run(
    text: str, reason: str, session: Session
) -> None:
    at = text.index("^")
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    found = session.failure(f"PAUSE QUERY averages;\n{text.replace('^', '')}").splitlines()
    assert found[0].startswith(f"t.sql:{line + 1}:{column}: "), found
    assert reason in found[0]


def test_a_stream_that_is_there_may_be_declared_again_as_it_is(session: Session) -> None:
    session.run(f"{STREAM}SET clock = 'wall'; {READINGS}")
    assert session.live == ("averages", "readings")


def test_a_dropped_query_may_be_created_again_in_the_same_text(session: Session) -> None:
    session.run(f"DROP QUERY averages; {READINGS};")
    assert session.live == ("readings",)
    assert "there is no stream or query 'averages'" in session.failure(
        "DROP QUERY readings; CREATE QUERY r AS SELECT x FROM averages"
        " EMIT WITHIN INTERVAL '2' SECOND"
    )


def test_a_session_keeps_a_stream_until_a_query_reads_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    session = Session(keeps_streams=True)
    session.run(STREAM)
    assert "stream lab is kept in this session" in capsys.readouterr().out
    assert "stream lab, time: is required" in session.failure(
        "CREATE STREAM b WITH (key = (value = 'k'), fields = ['x'])".replace("b", "lab")
    )
    assert session.runner.names() == (["lab"], [])
    session.run(READINGS)
    assert session.live == ("readings",)
    session.run("SHOW CREATE STREAM lab")
    assert "disorder = '1s'" in capsys.readouterr().out


def test_what_runs_is_shown(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    session.run(f"{READINGS}; PAUSE QUERY readings")
    as_json = Session(session.controller, "jsonl")
    capsys.readouterr()
    as_json.run("SHOW QUERIES")
    averages, readings = rows(capsys.readouterr().out)
    assert averages == {
        "query": "averages",
        "reads": "lab",
        "windows": "1m",
        "aggregates": "count, avg",
        "bound": "5s",
        "state": "running",
        "generation": 0,
    }
    assert (readings["windows"], readings["state"]) == ("every reading", "paused")
    as_json.run("SHOW STREAMS")
    assert rows(capsys.readouterr().out) == [
        {"stream": "lab", "input": "files", "fields": "x, y", "read_by": "averages, readings"}
    ]
    as_json.run("DESCRIBE averages; DESCRIBE readings; DESCRIBE STREAM lab")
    found = [(row["column"], row["type"], row["is"]) for row in rows(capsys.readouterr().out)]
    assert ("x_count", "BIGINT", "count of x") in found
    assert ("x_avg", "DOUBLE", "avg of x") in found
    assert ("stime", "TIMESTAMP", "the time of the reading") in found
    assert found[-1] == ("y", "DOUBLE", "y")
    Session(session.controller, "csv").run("DESCRIBE averages")
    assert capsys.readouterr().out.splitlines()[:2] == [
        "column,type,is",
        "window_start,TIMESTAMP,the start of the window",
    ]


def test_show_create_prints_the_statement(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    session.run("SHOW CREATE QUERY averages; SHOW CREATE STREAM lab;")
    shown = capsys.readouterr().out
    statements = parse(shown, "shown").statements
    assert [each.at for each in statements] == [shown.index("averages"), shown.index("lab WITH")]
    assert shown.startswith(
        "CREATE QUERY averages AS\nSELECT window_start, key, count(x), avg(x)\n"
    )


def test_a_query_is_explained(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    def explained(text: str) -> dict[str, str]:
        capsys.readouterr()
        Session(session.controller, "jsonl").run(f"EXPLAIN {text}")
        found: dict[str, str] = {}
        for row in rows(capsys.readouterr().out):
            found[row["what"]] = f"{found.get(row['what'], '')} {row['is']}".strip()
        return found

    other = AVERAGES.replace("averages", "wide").replace("'1' MINUTE", "'2' MINUTE")
    shared = explained(f"CREATE {other.replace('count(x), avg(x)', 'avg(x)')}")
    assert shared["children"] == "those of averages"
    assert shared["fragment"] == "root/wide.0.a root/wide.0.b"
    assert shared["first deadline"] == "4900ms after the normal time"
    assert "orderer" not in shared["fragment"]
    assert "sw.results.wide.stable, 1 partition" in shared["topic"]
    own = explained(READINGS)
    assert own["children"] == "its own"
    assert "orderer/readings.0.a" in own["fragment"]
    assert "sw.ordered.readings.0, 4 partitions" in own["topic"]
    assert own["normal time"].startswith("1s after")
    assert "readings/s of each stream" in own["cost"]


def test_a_damaged_text_is_refused_with_a_place_or_run() -> None:
    text = (
        f"{READINGS}; EXPLAIN CREATE {AVERAGES.replace('averages', 'a')}; DROP QUERY readings;"
        " PAUSE QUERY averages; SHOW QUERIES; SHOW CREATE STREAM lab; DESCRIBE averages"
    )
    controller = nodes()
    Session(controller).run(f"{STREAM}CREATE {AVERAGES};")
    begun = controller.object
    for other in damaged(text):
        session = Session(Controller(why_refused_on_nodes))
        session.controller.object = copy.deepcopy(begun)
        if (reported := session.outcome(other)) is not None:
            assert re.match(r"t\.sql:\d+:\d+: ", reported), other
            assert not session.controller.requested, other


def select(text: str, session: Session) -> Any:
    (statement,) = parse(text, "t").statements
    assert isinstance(statement, Select)
    return check_select(statement, RunningDeployment.of(session.controller.object.state).deployment)


def table(**columns: list[Any]) -> Any:
    times = pa.array([0, 60_000_000, 120_000_000], pa.timestamp("us", "UTC"))
    return pa.table({"window_start": times, "window_end": times, **columns})


def test_exact_rows_are_those_that_the_condition_keeps(session: Session) -> None:
    found = table(key=["a", "b", "a"], x_count=[1, 0, 3], x_avg=[1.5, None, 4.0])
    kept = select("SELECT key, x_avg FROM averages WHERE x_avg > 2 OR x_count = 0", session)
    assert list(exact_rows(kept, found)) == [("b", None), ("a", 4.0)]
    kept = select("SELECT window_start FROM averages WHERE key = 'a'", session)
    assert list(exact_rows(kept, found)) == [
        ("1970-01-01T00:00:00.000000Z",),
        ("1970-01-01T00:02:00.000000Z",),
    ]
    assert list(exact_rows(select("SELECT * FROM averages", session), found.slice(0, 0))) == []
    assert select("SELECT * FROM averages", session).columns == (
        *("window_start", "window_end", "key", "x_count", "x_avg"),
    )


@pytest.mark.parametrize(
    ("where", "minutes"),
    [
        ("window_start >= '1970-01-01T00:01Z'", [1, 2]),
        ("'1970-01-01 00:01' > window_start", [0]),
        ("window_start BETWEEN '1970-01-01T01:01+01:00' AND '1970-01-01T00:02'", [1, 2]),
        ("window_start IN ('1970-01-01', '1970-01-01T00:02') AND x_count > 1", [2]),
        ("window_start = window_end AND window_start IS NOT NULL", [0, 1, 2]),
    ],
)
def test_a_condition_compares_times_with_texts(
    session: Session, where: str, minutes: list[int]
) -> None:
    found = table(key=["a", "b", "a"], x_count=[1, 0, 3], x_avg=[1.5, None, 4.0])
    kept = select(f"SELECT window_start FROM averages WHERE {where}", session)
    shown = [f"1970-01-01T00:{minute:02}:00.000000Z" for minute in minutes]
    assert list(exact_rows(kept, found)) == [(at,) for at in shown]
    kept = select(f"SELECT window_start FROM averages WHERE {where} EMIT CHANGES", session)
    records = [
        {
            "kind": "stable",
            **dict.fromkeys(("window_start", "window_end"), f"1970-01-01T00:0{n}:00.000000Z"),
            "key": "a",
            "fields": {"x": {"count": count, "avg": 1.0}},
        }
        for n, count in enumerate([1, 0, 3])
    ]
    assert [row[1] for row in changed_rows(kept, iter(records))] == shown


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("window_start > 'noon'", "'noon' is no time: write '2026-01-31T12:00:00Z'"),
        ("window_start > 5", "a time cannot be compared with a number"),
        ("window_end - window_start > 5", "'window_end' is a time where a number is needed"),
        ("stime > '2026-01-01'", "there is no field 'stime'"),
    ],
)
def test_a_time_is_no_number(session: Session, where: str, reason: str) -> None:
    assert reason in session.failure(
        f"SELECT window_start, window_end, key FROM averages WHERE {where}"
    )


def test_changes_have_their_kind_and_undo_is_always_shown(session: Session) -> None:
    window = {"window_start": "s", "window_end": "e", "key": "a"}
    records: list[dict[str, Any]] = [
        {
            "kind": "tentative",
            **window,
            "fields": {"x": {"count": 1, "avg": 1.0}},
            "missing": ["lab"],
        },
        {"kind": "tentative", **window, "fields": {"x": {"count": 0, "avg": None}}, "missing": []},
        {"kind": "undo", "undo_from": "s", "undo_to": "e"},
        {"kind": "stable", **window, "fields": {"x": {"count": 2, "avg": 3.0}}, "missing": []},
    ]
    kept = select("SELECT key, x_avg FROM averages WHERE x_count > 0 EMIT CHANGES", session)
    assert list(changed_rows(kept, iter(records))) == [
        ("tentative", "a", 1.0),
        ("undo", None, None),
        ("stable", "a", 3.0),
    ]
    every = select("SELECT * FROM averages EMIT CHANGES", session)
    assert next(changed_rows(every, iter(records))) == ("tentative", "s", "e", "a", 1, 1.0, "lab")


def test_changes_of_readings(session: Session) -> None:
    session.run(READINGS)
    kept = select("SELECT stime, y FROM readings WHERE x < 3 EMIT CHANGES", session)
    record = {"kind": "stable", "stime": "t", "key": "a", "fields": {"x": 1.0, "y": 2.0}}
    assert list(changed_rows(kept, iter([record]))) == [("stable", "t", 2.0)]


def command(*words: str, code: int = 0, input_: str | None = None) -> str:
    done = CliRunner().invoke(app, ["sql", *words], input=input_)
    if isinstance(done.exception, UsageError | DeploymentError | EnvironmentProblem):
        assert done.exception.exit_code == code
        return done.exception.message
    assert done.exit_code == code, done.output
    return done.stdout


def test_the_command_prints_the_deployment_file_without_a_deployment(tmp_path: Path) -> None:
    text = f"{STREAM}CREATE {AVERAGES};"
    (tmp_path / "d.sql").write_text(text)
    printed = command("--to-yaml", "-f", str(tmp_path / "d.sql"))
    assert parse_deployment(printed, "d.yaml").deployment.queries.keys() == {"averages"}
    assert command("--to-yaml", input_=text) == printed
    assert command("--to-yaml", "-e", STREAM, "-e", f"CREATE {AVERAGES} -- no semicolon") == printed


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("-e", "SELEC"), "-e:1:1: SELEC begins no statement"),
        (("--to-yaml", "-e", STREAM), "-e:1:1: there is no CREATE QUERY"),
        (("--to-yaml", "-e", "DROP QUERY q"), "-e:1:12: declares nothing"),
        (("-e", "SHOW QUERIES", "-f", "x"), "-e and -f: give one of them"),
        (("-f", "not-there.sql"), "not-there.sql: cannot be read"),
        (("-e", "", "--format", "xml"), "--format xml: choose table, jsonl or csv"),
    ],
)
def test_the_command_refuses_with_exit_code_2(words: tuple[str, ...], reason: str) -> None:
    assert reason in command(*words, code=2)


def test_without_a_deployment_a_query_is_explained_and_others_are_refused(tmp_path: Path) -> None:
    data = ("--data-dir", str(tmp_path))
    shown = command("-e", f"{STREAM}EXPLAIN {READINGS}", *data)
    assert "orderer/readings.0.a" in shown
    assert "no deployment runs from" in command("-e", "SHOW QUERIES", *data, code=3)
    assert command("-e", "-- nothing", *data) == ""


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "d.sql").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in command("-f", str(tmp_path / "d.sql"), code=2)
