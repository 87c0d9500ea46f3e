"""The command line: every error one sentence, every exit code as documented, help with examples."""

from __future__ import annotations

import errno
import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from tests.support.memory import MemoryBroker
from tests.support.own_topics import SeenTopics
from tests.support.waiting import WAIT_S_MAX
from tests.unit.histories import Root, batch, expectations
from tests.unit.judge.test_client_check import CELLS
from typer.main import get_command

from slackwater.cli import app as cli
from slackwater.cli import tables
from slackwater.cli.common import emit, parse_bindings, parse_duration, reach_kafka, warn
from slackwater.cli.doctor import Finding, Trouble, disk, examine
from slackwater.cli.help_sections import SECTIONS
from slackwater.cli.screen import Board, PlainLines, render
from slackwater.cli.tables import PrintedQuery
from slackwater.codec.results import Label, ResultHead, encode_boundary, encode_undo, parse_result
from slackwater.deployment.parse import load_deployment
from slackwater.model.errors import CheckFailed, EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.names import RESULT_KINDS, UNPREFIXED, Names
from slackwater.protocols.dpc.soutput.answers import EmptyRun, Undo
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.security.private import write_atomically
from slackwater.runtime.service import settings as settings_module
from slackwater.runtime.service.registry import QueryDefinition, Registry


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BOOTSTRAP", "DATA_DIR"):
        monkeypatch.delenv(f"SLACKWATER_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    settings_module.settings.cache_clear()


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
) -> tuple[int, str, str]:
    """Run the command in this process; return exit code, output and errors."""
    monkeypatch.setattr(sys, "argv", ["slackwater", *args])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    shown = capsys.readouterr()
    code = caught.value.code
    return (code if isinstance(code, int) else 0), shown.out, shown.err


COMMANDS = [
    "up",
    "topics",
    "results",
    "status",
    "query list",
    "query show",
    "query apply",
    "query delete",
    "query pause",
    "query resume",
    "ingest",
    "init",
    "backfill",
    "audit",
    "controller",
    "node list",
    "node drain",
    "node leave",
    "node move",
    "acl",
    "plan",
    "doctor",
    "quarantine",
    "rehearse",
    "demo",
    "send",
    "sql",
    "watch",
    "alerts",
    "notify",
    "gateway",
]


def test_every_command_is_known_here() -> None:
    tree: Any = get_command(cli.app)
    names = [
        f"{name} {sub}".strip()
        for name, command in tree.commands.items()
        for sub in getattr(command, "commands", {"": None})
    ]
    assert sorted(names) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, _ = run(monkeypatch, capsys, *command.split(), "--help")
    assert code == 0
    assert f"Example: slackwater {command}" in " ".join(out.split())


def test_the_help_has_each_command_in_a_section_with_a_complete_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert "..." not in out.replace("[ARGS]...", "")
    listed = re.findall(r"^  ([a-z]+)  ", out[out.index("Begin:") :], re.MULTILINE)
    assert listed == [name for names in SECTIONS.values() for name in names]
    assert set(listed) == {command.partition(" ")[0] for command in COMMANDS}


def test_the_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(monkeypatch, capsys, "--version")
    assert (code, out) == (0, f"slackwater {version('slackwater')}\n")


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ([], "name the deployment file, as in: slackwater {command} rooms.yaml"),
        (["a.yaml", "--deployment", "b.yaml"], "a.yaml and --deployment b.yaml: name one"),
        (["none.yaml"], "none.yaml: cannot be read"),
        (["--deployment", "none.yaml"], "none.yaml: cannot be read"),
    ],
)
@pytest.mark.parametrize("command", ["up", "rehearse"])
def test_a_file_is_given_once_as_an_argument_or_an_option(
    command: str,
    options: list[str],
    reported: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    inputs = ["--input", "a=b.csv"] if command == "rehearse" else []
    code, _, err = run(monkeypatch, capsys, command, *options, *inputs)
    assert code == 2
    assert err.startswith(f"slackwater: {reported.format(command=command)}")


DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  room-1: {key: {value: a}, time: {column: t, unit: s}, fields: [x]}
queries:
  climate: {from: [room-1], window: {size: 1s}, aggregate: [count], bound: 1s}
"""


UNDECLARED = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [x]
queries:
  climate: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 1s}
"""


def test_up_with_a_file_of_before_names_the_stream_and_the_line_to_add(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    path = tmp_path / "d.yaml"
    path.write_text(UNDECLARED)
    code, _, reported = run(
        monkeypatch, capsys, "up", "--deployment", "d.yaml", "--data-dir", str(data)
    )
    assert code == 2
    reported = " ".join(reported.split())
    assert "d.yaml:3: streams.lab.expect_every: a topic does not show" in reported
    for line in ("expect_every: auto", "expect_every: 5s", "sporadic: true"):
        assert f"`{line}`" in reported
    assert list(data.iterdir()) == [], "refused before any effect"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT)
    (tmp_path / "bad.yaml").write_text(DEPLOYMENT.replace("bound", "buond"))
    (tmp_path / "a.csv").write_text("t,x\n1,1\n2,2\n60,1\n")
    (tmp_path / "b.csv").write_text("time,x\n1,1\n")
    complete = gzip.compress(
        ("t,x\n" + "".join(f"{t},{hash((t, 1))}\n" for t in range(50_000))).encode()
    )
    (tmp_path / "late.csv.gz").write_bytes(complete[: len(complete) // 2])
    (tmp_path / "early.csv.gz").write_bytes(complete[:15])
    return tmp_path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("line", "code", "text"),
    [
        ("query apply d.yaml", 3, "no deployment runs from .slackwater: start `slackwater up`"),
        ("query apply none.yaml", 2, "none.yaml"),
        ("query apply d.yaml --query x", 2, "d.yaml has no query x, only"),
        ("query apply d.yaml --from soon", 2, "--from soon: choose now, beginning or a time"),
        ("query delete climate", 3, "no deployment runs from .slackwater: start `slackwater up`"),
        ("status", 3, "no broker is known"),
        ("status --bootstrap nowhere", 2, "--bootstrap has 'nowhere': write host:port"),
        ("results climate --bootstrap 127.0.0.1:1", 3, "no broker answers at 127.0.0.1:1"),
        ("up --deployment none.yaml", 2, "none.yaml"),
        (
            "up --deployment d.yaml --bootstrap kafka",
            2,
            "--bootstrap has 'kafka': write host:port",
        ),
        ("up --deployment d.yaml --bootstrap a:1,b", 2, "--bootstrap has 'a:1,b': write host"),
        ("demo --keep a.csv", 2, "--keep a.csv: not a directory"),
        ("demo --keep a.csv/x", 2, "--keep a.csv/x: not a directory"),
        (
            "rehearse --deployment d.yaml --input room-1=late.csv.gz --out r",
            2,
            "marker was reached; copy it again, or use what can be unpacked: gzip -dc late.csv.gz",
        ),
        (
            "rehearse --deployment d.yaml --input room-1=early.csv.gz --out r",
            2,
            "early.csv.gz is damaged: Compressed file ended before the end-of-stream marker was",
        ),
        ("up --deployment d.yaml --port 99999", 2, "between 1 and 65535"),
        ("up --deployment d.yaml --port 5 --bootstrap a:1", 2, "--port is for the embedded"),
        ("rehearse --deployment bad.yaml --input room-1=a.csv --out r", 2, "buond"),
        ("rehearse --deployment d.yaml --input room-1 --out r", 2, "write --input STREAM=FILE"),
        ("rehearse --deployment d.yaml --input room-1=b.csv --out r", 2, "no column 't'"),
        (
            "rehearse --deployment d.yaml --input room-1=c.csv --out r",
            2,
            "c.csv cannot be read: No such file",
        ),
        ("rehearse --deployment d.yaml --input room-1=a.csv --out x/r", 2, "no directory"),
        ("rehearse --deployment d.yaml --input room-1=a.csv --out .", 2, "--out . is a directory"),
        (
            "rehearse --deployment d.yaml --input room-1=a.csv --out r --report .",
            2,
            "--report . is a directory",
        ),
        (
            "rehearse --deployment d.yaml --input room-1=a.csv --out r --duration soon",
            2,
            "--duration: 'soon' is not a duration",
        ),
        ("rehearse --deployment d.yaml", 2, "Missing option"),
        ("nonsense", 2, "No such command"),
    ],
)
def test_mistakes(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: str,
    code: int,
    text: str,
) -> None:
    found, _, err = run(monkeypatch, capsys, *line.split())
    assert text in " ".join(err.split())
    assert found == code
    assert "Traceback" not in err


AUDIT = "audit climate --bootstrap h:1 --deployment d.yaml"
AUDITED = """\
apiVersion: slackwater/v1
streams:
  room-1: {key: {value: a}, time: {column: t, unit: s}, fields: [x]}
queries:
  climate: {from: [room-1], window: {size: 1s}, aggregate: [count], bound: 1s}
  raw: {from: [room-1], bound: 1s}
  daily: {from: [climate], window: {size: 10s}, aggregate: [sum], bound: 1s}
"""


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("raw", "query raw has no window: the audit recomputes windows only"),
        ("daily", "query daily reads climate: in this version the audit"),
        ("other", "there is no query other; registered: applied, climate, daily, raw, strange"),
        # Applied at run time: it has been registered with the query that it reads.
        ("applied", "query applied reads unlisted: in this version the audit"),
        ("strange", "d.yaml has no elsewhere, which query strange reads: give the file from"),
    ],
)
def test_an_unsupported_audit_is_refused_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    query: str,
    text: str,
) -> None:
    (tmp_path / "d.yaml").write_text(AUDITED)
    broker = MemoryBroker()
    broker.create_topic(Names().registry)
    queries = load_deployment(tmp_path / "d.yaml").queries
    definitions = [QueryDefinition(name, 0, 0, 100_000, spec) for name, spec in queries.items()]
    (tmp_path / "applied.yaml").write_text(
        AUDITED.replace("climate", "unlisted").replace("daily", "applied")
    )
    applied = load_deployment(tmp_path / "applied.yaml")
    spec = applied.queries["applied"]
    Registry(broker).publish_queries(
        *definitions,
        QueryDefinition("applied", 0, 0, 100_000, spec, deployment=applied.connected(spec)),
        QueryDefinition(
            "strange", 0, 0, 100_000, replace(spec, name="strange", sources=("elsewhere",))
        ),
    )
    monkeypatch.setattr("slackwater.cli.show.KafkaTransport", lambda *_: broker)
    monkeypatch.setattr("slackwater.cli.show.partition_counts", lambda _, topics: topics)
    monkeypatch.setattr("slackwater.machine.broker.why_no_answer", lambda *_: None)

    line = f"audit {query} --bootstrap h:1 --deployment d.yaml"
    code, out, err = run(monkeypatch, capsys, *line.split())

    assert text in " ".join(err.split())
    assert (code, out) == (2, "")


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryBroker:
    """A broker with three registered queries, none of which has answers yet."""
    (tmp_path / "d.yaml").write_text(AUDITED)
    broker = MemoryBroker()
    broker.create_topic(UNPREFIXED.registry)
    deployment = load_deployment(tmp_path / "d.yaml")
    queries = deployment.queries
    for stream in deployment.streams:
        broker.create_topic(UNPREFIXED.quarantine(stream))
    for name in (*queries, "later"):  # its start is not known yet
        for kind in RESULT_KINDS:
            broker.create_topic(UNPREFIXED.results(name, kind))
    definitions = [QueryDefinition(name, 0, 0, 100_000, spec) for name, spec in queries.items()]
    Registry(broker).publish_queries(*definitions)
    for module in ("cli.show", "cli.quarantine", "cli.audit", "client.follow"):
        monkeypatch.setattr(f"slackwater.{module}.KafkaTransport", lambda *_: broker)
    monkeypatch.setattr("slackwater.client.follow.partition_count", lambda *_: 1)
    monkeypatch.setattr(
        "slackwater.client.follow.TopicObserver", lambda _, after_look: SeenTopics(after_look)
    )

    def partition_counts(_bootstrap: str, topics: list[str]) -> dict[str, int]:
        return {topic: 1 for topic in topics if "other" not in topic}

    for module in ("cli.show", "cli.quarantine", "cli.audit"):
        monkeypatch.setattr(f"slackwater.{module}.partition_counts", partition_counts)
    monkeypatch.setattr("slackwater.machine.broker.why_no_answer", lambda *_: None)
    return broker


@pytest.mark.parametrize(
    ("command", "code", "out", "err"),
    [
        ("query list", 0, "no query is registered\n", ""),
        ("query show climate", 2, "", "there is no query climate; registered: none yet"),
        ("results climate", 2, "", "there is no query climate; registered: none yet"),
    ],
)
def test_where_no_deployment_was_ever_started_nothing_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    code: int,
    out: str,
    err: str,
) -> None:
    """A request for the offsets of a missing topic waits 30 s for it."""
    monkeypatch.setattr("slackwater.cli.show.partition_counts", lambda *_: {})
    monkeypatch.setattr("slackwater.cli.show.Registry", lambda _: pytest.fail("it was read"))
    monkeypatch.setattr("slackwater.machine.broker.why_no_answer", lambda *_: None)

    found, shown, reported = run(monkeypatch, capsys, *command.split(), "--bootstrap", "h:1")

    assert (found, shown) == (code, out)
    assert err in reported


@pytest.mark.parametrize("command", ["query list", "query show climate"])
def test_with_controllers_the_record_is_read_and_no_kafka(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr("slackwater.cli.show.partition_counts", lambda *_: pytest.fail("asked"))
    code, _, err = run(monkeypatch, capsys, *command.split(), "--controllers", "127.0.0.1:1")
    assert code == 3
    assert "no controller accepts the connection: 127.0.0.1:1" in err
    assert "is `slackwater controller` running there" in err


@pytest.mark.usefixtures("registered")
def test_an_audit_of_nothing_is_refused_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(monkeypatch, capsys, *AUDIT.split())
    assert (code, out) == (1, "")
    assert err.startswith("slackwater: nothing to audit: climate has no results yet: its first")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("command", ["results other", "query show other"])
def test_a_missing_query_is_reported_with_the_existing_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    code, out, err = run(monkeypatch, capsys, *command.split(), "--bootstrap", "h:1")

    assert (code, out) == (2, "")
    assert err == "slackwater: there is no query other; registered: climate, daily, raw\n"


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("query", "text"),
    [
        (
            "climate",
            "climate has no results yet: its first window ended at 1970-01-01T00:00:01.000000Z;",
        ),
        ("raw", "raw has no results yet: the first ones follow the first readings"),
        ("later", "later has no results yet: the first ones follow the first readings"),
    ],
)
def test_a_query_without_results_is_reported_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], query: str, text: str
) -> None:
    code, out, err = run(monkeypatch, capsys, "results", query, "--bootstrap", "h:1")

    assert (code, out) == (0, "")
    assert text in err


def test_answers_without_a_row_are_explained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], registered: MemoryBroker
) -> None:
    empty = EmptyRun(0, 0, True, 0, 1_000_000, 1, 0, ())
    line = encode_boundary(ResultHead("climate", 0), empty, 0)
    writer = registered.writer(pytest.fail)
    writer.append("sw.results.climate.stable", 0, line)
    writer.await_delivered()

    code, out, err = run(monkeypatch, capsys, "results", "climate", "--bootstrap", "h:1")

    assert (code, out) == (0, "")
    assert err.startswith("slackwater: climate has answers, and none of them has a row")

    options = ("--from", "end", "--bootstrap", "h:1")
    code, out, err = run(monkeypatch, capsys, "results", "climate", *options)
    assert (code, out) == (0, "")
    assert "none of them has a row" not in err, "rows before the end were not looked for"

    options = ("--kind", "boundary", "--bootstrap", "h:1")
    code, out, err = run(monkeypatch, capsys, "results", "climate", *options)
    assert (code, len(out.splitlines()), err) == (0, 1, "")

    stream = load_deployment(Path("d.yaml")).queries["climate"].sources[0]
    writer.append(UNPREFIXED.quarantine(stream), 0, b"{}")
    writer.await_delivered()
    code, out, err = run(monkeypatch, capsys, "results", "climate", "--bootstrap", "h:1")
    assert (code, out) == (0, "")
    assert err.endswith(
        f"readings in quarantine: 1 of {stream}; `slackwater quarantine {stream}` says why\n"
    )


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("at=5s kill nobody", "there is no process nobody; choose among"),
        ("at=5m kill root", "the replay ends after 59s"),
        ("at=5s silence room-9 for 1s", "there is no stream room-9"),
        ("sometime", "invalid syntax"),
    ],
)
def test_bad_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str, text: str
) -> None:
    line = "rehearse --deployment d.yaml --input room-1=a.csv --out r --fault"
    code, _, err = run(monkeypatch, capsys, *line.split(), fault)
    assert text in err
    assert code == 2
    assert not Path("r").exists(), "nothing was started"


def test_bootstrap_is_looked_up_in_run_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slackwater.machine.broker.why_no_answer", lambda where, timeout_s: None)
    (tmp_path / ".slackwater").mkdir()
    (tmp_path / ".slackwater" / "run.json").write_text(
        json.dumps({"bootstrap": "h:1", "deployment": "d.yaml"})
    )
    assert reach_kafka(None, None) == Cluster("h:1")
    monkeypatch.setenv("SLACKWATER_BOOTSTRAP", "e:2")
    settings_module.settings.cache_clear()
    assert reach_kafka(None, None) == Cluster("e:2")
    assert reach_kafka("o:3", None) == Cluster("o:3")
    (tmp_path / "run.json").write_text("{")
    monkeypatch.delenv("SLACKWATER_BOOTSTRAP")
    settings_module.settings.cache_clear()
    with pytest.raises(EnvironmentProblem, match=r"run\.json is not what"):
        reach_kafka(None, None, tmp_path)


def test_kafkas_properties_are_looked_up_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options first, then the environment, then run.json.

    A file may contain the address as well.
    """
    monkeypatch.setattr("slackwater.machine.broker.why_no_answer", lambda where, timeout_s: None)
    for name, text in (("own", "bootstrap.servers=own:1\n"), ("run", "security.protocol=SSL\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
    config = str(tmp_path / "run")
    run = {"bootstrap": "run:2", "deployment": "d.yaml", "kafka_config": config}
    (tmp_path / "run.json").write_text(json.dumps(run))
    own, of_run = str(tmp_path / "own"), reach_kafka(None, None, tmp_path)
    assert (of_run.bootstrap, of_run.security.protocol) == ("run:2", "SSL")
    assert reach_kafka(None, Path(own), tmp_path).bootstrap == "own:1"
    assert reach_kafka("o:3", Path(own), tmp_path).bootstrap == "o:3"
    monkeypatch.setenv("SLACKWATER_KAFKA_CONFIG", own)
    settings_module.settings.cache_clear()
    assert reach_kafka(None, None, tmp_path).bootstrap == "own:1"
    monkeypatch.setenv("SLACKWATER_BOOTSTRAP", "e:2")
    settings_module.settings.cache_clear()
    assert reach_kafka(None, None, tmp_path).bootstrap == "e:2"
    assert reach_kafka(None, Path(own), tmp_path).bootstrap == "own:1", "an option takes precedence"
    settings_module.settings.cache_clear()


def test_options_name_themselves() -> None:
    assert parse_bindings("--input", ["a=x=y.csv"]) == {"a": Path("x=y.csv")}
    with pytest.raises(UsageError, match="--input a is given twice"):
        parse_bindings("--input", ["a=1", "a=2"])
    assert parse_duration("--wait", "1.5s") == 1_500_000
    assert [error("x").exit_code for error in (CheckFailed, UsageError, EnvironmentProblem)] == [
        1,
        2,
        3,
    ]
    assert issubclass(UsageError, SlackwaterError)


def test_doctor_goes_on_after_a_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> str:
        raise Trouble("it is not there", "install it")

    monkeypatch.setattr("slackwater.cli.doctor.java", no_java)
    (tmp_path / "run.json").write_text(
        '{"bootstrap": "127.0.0.1:1", "deployment": "rooms.yaml"}'  # as after a clean stop
    )
    findings = {finding.subject: finding for finding in examine(tmp_path)}
    assert findings["Java"] == Finding("Java", "it is not there", "install it", ok=False)
    assert findings["broker"].ok
    (tmp_path / "file").touch()
    with pytest.raises(Trouble, match="file is a file"):
        disk(tmp_path / "file")
    monkeypatch.setattr("slackwater.cli.doctor.DISK_FREE_BYTES_MIN", 2**70)
    with pytest.raises(Trouble, match="GB free"):
        disk(tmp_path / "not" / "yet")


@pytest.mark.parametrize(
    ("number", "reported"),
    [
        (errno.ENOSPC, "No space left on device: make room on this disk"),
        (errno.EACCES, "Permission denied: run the command as the owner"),
    ],
)
def test_a_full_disk_is_one_sentence(
    number: int,
    reported: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    def full(*_: object) -> None:
        monkeypatch.setattr(os, "fsync", fail)
        write_atomically(tmp_path / "job.json", "{}")

    monkeypatch.setattr("slackwater.cli.ingest.run_ingest", full)
    code, out, err = run(monkeypatch, capsys, "ingest", "room-1", "a.csv")
    assert (code, out) == (3, "")
    assert err.startswith(f"slackwater: {tmp_path / 'job.json'}: {reported}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_python_m_is_the_same_command(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "slackwater.cli.app", "query", "delete", "q"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=WAIT_S_MAX,
    )
    assert shown.returncode == 3
    assert shown.stderr.startswith("slackwater: no deployment runs from .slackwater")


def history() -> list[dict[str, Any]]:
    root = Root(expectations(aggregate=("count", "avg")), CELLS)
    root.stable(1)
    root.tentative(2, ["room-2"])
    root.stable(3)
    return root.records


def test_a_row_names_the_fields_that_overflowed() -> None:
    row = next(record for record in history() if record["kind"] == "stable")
    assert tables.line(row | {"overflow": ["t", "u"]}).endswith("  overflow of t  overflow of u")
    assert "overflow" not in tables.line(row)


def test_results_as_lines() -> None:
    lines = [tables.line(record) for record in history()]
    assert lines[0] == "stable    1970-01-01 00:16:40        a            x count=5 avg=2"
    assert "without room-2" in lines[3]
    assert any(line.startswith("undo      1970-01-01 00:16:41") for line in lines)
    assert any(line.endswith("(window)     2 rows") for line in lines)
    assert lines[-1] == "rec_done  all corrected"
    of_parts = [tables.line(record, PrintedQuery(parts=2)) for record in history()]
    assert any(line.endswith("(window)     2 rows, part 0") for line in of_parts)
    assert of_parts[-1] == "rec_done  all corrected, part 0"


def test_a_row_of_a_missing_stream_has_a_part_of_it() -> None:
    row = next(record for record in history() if record["kind"] == "tentative")
    assert row["missing"] == ["room-2"]
    for streams, words in (
        ({"room-1", "room-2"}, "without room-2"),
        ({"room-2"}, "without the rest of room-2"),
    ):
        assert tables.line(row, PrintedQuery(frozenset(streams))).endswith(f"  {words}")


def test_a_key_forges_no_line_and_moves_no_cursor() -> None:
    record = {**history()[0], "key": "m\nstable    1970-01-01\x1b[2J\u202e\ud800"}
    shown = tables.line(record)
    assert shown.isprintable()
    assert r"m\nstable    1970-01-01\x1b[2J\u202e\ud800" in shown
    assert tables.visible("Büro 7 é 日本") == "Büro 7 é 日本"


def test_what_a_message_holds_is_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    warn("no column 'a'; its header has: \x1b]0;title\x07\nand more")
    emit("two\nlines\x00")
    emit('{"key": "\u2028"}', is_json=True)
    reported = capsys.readouterr()
    assert reported.err == "no column 'a'; its header has: \\x1b]0;title\\x07\nand more\n"
    assert reported.out == 'two\nlines\\x00\n{"key": "\u2028"}\n'


def test_the_board_shows_tentative_undone_and_exact() -> None:
    board = Board("climate", 1_000_000, ("x", "avg"))
    records = history()
    undo = next(i for i, r in enumerate(records) if r["kind"] == "undo")
    for record in records[:undo]:
        board.apply(record, 100)
    assert [line.shown(100) for line in board.lines.values()] == ["exact", "tentative", "tentative"]
    for record in records[undo:]:
        board.apply(record, 200)
    shown = [line.shown(300) for _, line in sorted(board.lines.items())]
    assert shown == ["exact", "undone", "undone", "exact"]
    later = [line.shown(10_000_000) for _, line in sorted(board.lines.items())]
    assert later == ["exact", "corrected", "corrected", "exact"]
    assert board.counts == {"exact": 2, "tentative": 2, "undone": 2, "corrected": 2}
    assert render(board, ["a", "b"], "title", "", 0.5, 300) is not None


def test_the_board_has_each_window_that_a_run_of_empty_ones_replaces() -> None:
    """They contained a reading whose place is elsewhere, or none."""
    board = Board("climate", 1_000_000, ("x", "avg"), windows_max=3)
    head = ResultHead("climate", 0)

    def window(start: int, label: Label, windows: int = 1) -> None:
        end = (start + windows) * 1_000_000
        run = EmptyRun(0, 0, label == "stable", start * 1_000_000, end, windows, 0, ())
        board.apply(parse_result(encode_boundary(head, run, 0)), 0)

    for start in (1, 2, 3):
        window(start, "tentative")
    undo = encode_undo(head, Undo(0, 1, 1_000_000, 3_000_000), 0)
    board.apply(parse_result(undo), 0)
    window(0, "stable", windows=5)
    assert board.counts == {"exact": 2, "tentative": 3, "undone": 3, "corrected": 3}
    assert {at: line.state for at, line in board.lines.items()} == dict.fromkeys(
        (1_000_000, 2_000_000, 3_000_000), "corrected"
    )


def test_skipped_windows_are_shown_as_such_and_not_as_empty() -> None:
    root = Root(expectations(), batch({(s, "a"): {"room-1": 1} for s in range(1_000, 1_005)}))
    root.skip(3, ["room-2"])
    (run,) = root.records
    emitted: list[str] = []
    PlainLines(Board("climate", 1_000_000, ("x", "avg")), ["a"], emitted.append).saw(run, 0)
    assert emitted == ["00:16:40  a      ·  tentative, skipped, without room-2"]
    assert tables.line(run).endswith(" skipped x 3  without room-2")


def test_a_stream_of_which_a_part_is_in_a_window_is_not_absent_from_it() -> None:
    emitted: list[str] = []
    plain = PlainLines(Board("climate", 1_000_000, ("x", "avg")), ["room-2"], emitted.append)
    for record in history():
        plain.saw(record | {"key": "room-2"} if "key" in record else record, 0)
    assert emitted[1] == "00:16:41  room-2   2.00  tentative, without the rest of room-2"
    board = Board("climate", 1_000_000, ("x", "avg"), streams=["room-2"])
    of_one_stream = PlainLines(board, ["a"], emitted.append)
    for record in history():
        of_one_stream.saw(record, 0)
    assert "00:16:41  a   2.00  tentative, without the rest of room-2" in emitted


def test_a_pipe_gets_lines() -> None:
    emitted: list[str] = []
    plain = PlainLines(Board("climate", 1_000_000, ("x", "avg")), ["a"], emitted.append)
    for record in history():
        plain.saw(record, 0)
    assert emitted[0] == "00:16:40  a   2.00  exact"
    assert emitted[1] == "00:16:41  a   2.00  tentative, without room-2"
    assert emitted[3] == "00:16:41  to 00:16:42 undone, exact answers follow"
    assert emitted[-1].strip() == "all corrected"
