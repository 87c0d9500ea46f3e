"""The command line: every error one sentence, every exit code as documented, help with examples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.histories import Root, terms
from tests.unit.test_client_check import CELLS
from typer.main import get_command

from slackwater.cli import app as cli
from slackwater.cli import tables
from slackwater.cli.common import find_bootstrap, parse_bindings, parse_duration
from slackwater.cli.doctor import Finding, Trouble, disk, examine
from slackwater.cli.screen import Board, PlainLines, render
from slackwater.codec.results import Label, encode_boundary, encode_undo, parse_result
from slackwater.model.errors import CheckFailed, EnvironmentProblem, SlackwaterError, UsageError
from slackwater.model.records import Heartbeat
from slackwater.runtime import settings as settings_module
from slackwater.runtime.deployment import load_deployment
from slackwater.runtime.memory import MemoryBroker
from slackwater.runtime.registry import QueryDefinition, Registry
from slackwater.runtime.topics import REGISTRY


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("BOOTSTRAP", "DATA_DIR"):
        monkeypatch.delenv(f"SLACKWATER_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    settings_module.settings.cache_clear()


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *args: str
) -> tuple[int, str, str]:
    """The command in this process: exit code, output, errors."""
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
    "ingest",
    "audit",
    "doctor",
    "rehearse",
    "demo",
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


DEPLOYMENT = """\
apiVersion: slackwater/v1
streams:
  room-1: {key: {value: a}, time: {column: t, unit: s}, fields: [x]}
queries:
  climate: {from: [room-1], window: {size: 1s}, aggregate: [count], bound: 1s}
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "d.yaml").write_text(DEPLOYMENT)
    (tmp_path / "bad.yaml").write_text(DEPLOYMENT.replace("bound", "buond"))
    (tmp_path / "a.csv").write_text("t,x\n1,1\n2,2\n60,1\n")
    (tmp_path / "b.csv").write_text("time,x\n1,1\n")
    return tmp_path


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("query apply d.yaml", 2, "query apply is not in this version"),
        ("query delete climate", 2, "query delete is not in this version"),
        ("status", 3, "no broker is known"),
        ("status --bootstrap nowhere", 2, "--bootstrap says 'nowhere': write host:port"),
        ("results climate --bootstrap 127.0.0.1:1", 3, "no broker answers at 127.0.0.1:1"),
        ("up --deployment none.yaml", 2, "none.yaml"),
        ("up --deployment d.yaml --port 99999", 2, "no port"),
        ("up --deployment d.yaml --port 5 --bootstrap a:1", 2, "--port is for the embedded"),
        ("rehearse --deployment bad.yaml --input room-1=a.csv --out r", 2, "buond"),
        ("rehearse --deployment d.yaml --input room-1 --out r", 2, "write --input STREAM=FILE"),
        ("rehearse --deployment d.yaml --input room-1=b.csv --out r", 2, "no column 't'"),
        ("rehearse --deployment d.yaml --input room-1=c.csv --out r", 2, "there is no file c.csv"),
        ("rehearse --deployment d.yaml --input room-1=a.csv --out x/r", 2, "no directory"),
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
    says: str,
) -> None:
    found, _, err = run(monkeypatch, capsys, *line.split())
    assert says in " ".join(err.split())
    assert found == code
    assert "Traceback" not in err


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
    ("query", "says"),
    [
        ("raw", "query raw has no window: the audit recomputes windows only"),
        ("daily", "query daily reads climate: an audit recomputes from readings"),
        ("other", "there is no query other; registered: climate, daily, raw"),
    ],
)
def test_what_an_audit_cannot_do_it_says_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    query: str,
    says: str,
) -> None:
    (tmp_path / "d.yaml").write_text(AUDITED)
    broker = MemoryBroker()
    broker.create_topic(REGISTRY)
    queries = load_deployment(tmp_path / "d.yaml").queries
    definitions = [QueryDefinition(name, 0, 0, 100_000, spec) for name, spec in queries.items()]
    Registry(broker).publish_queries(*definitions)
    monkeypatch.setattr("slackwater.cli.audit.KafkaTransport", lambda _bootstrap: broker)
    monkeypatch.setattr("slackwater.runtime.broker.answers", lambda *_: True)

    line = f"audit {query} --bootstrap h:1 --deployment d.yaml"
    code, out, err = run(monkeypatch, capsys, *line.split())

    assert says in " ".join(err.split())
    assert (code, out) == (2, "")


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("at=5s kill nobody", "there is no process nobody; choose among"),
        ("at=5m kill root", "the replay ends after 59s"),
        ("at=5s silence room-9 for 1s", "there is no stream room-9"),
        ("sometime", "is not understood"),
    ],
)
def test_bad_faults(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fault: str, says: str
) -> None:
    line = "rehearse --deployment d.yaml --input room-1=a.csv --out r --fault"
    code, _, err = run(monkeypatch, capsys, *line.split(), fault)
    assert says in err
    assert code == 2
    assert not Path("r").exists(), "nothing was begun"


def test_bootstrap_is_looked_up_in_run_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answers(bootstrap: str, timeout_s: float) -> bool:
        asked.append(bootstrap)
        return True

    monkeypatch.setattr("slackwater.runtime.broker.answers", answers)
    (tmp_path / ".slackwater").mkdir()
    (tmp_path / ".slackwater" / "run.json").write_text(json.dumps({"bootstrap": "h:1"}))
    assert find_bootstrap(None) == "h:1"
    monkeypatch.setenv("SLACKWATER_BOOTSTRAP", "e:2")
    settings_module.settings.cache_clear()
    assert find_bootstrap(None) == "e:2"
    assert find_bootstrap("o:3") == "o:3"
    (tmp_path / "run.json").write_text("{")
    monkeypatch.delenv("SLACKWATER_BOOTSTRAP")
    settings_module.settings.cache_clear()
    with pytest.raises(EnvironmentProblem, match=r"run\.json cannot be read"):
        find_bootstrap(None, tmp_path)


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
    findings = {finding.subject: finding for finding in examine(tmp_path)}
    assert findings["Java"] == Finding("Java", "it is not there", "install it")
    assert not findings["Java"].ok
    assert findings["broker"].ok
    monkeypatch.setattr("slackwater.cli.doctor.disk_free_bytes_min", 2**70)
    with pytest.raises(Trouble, match="GB free"):
        disk(tmp_path / "not" / "yet")


def test_python_m_is_the_same_command(tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "slackwater.cli.app", "query", "delete", "q"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=50,
    )
    assert shown.returncode == 2
    assert shown.stderr.startswith("slackwater: query delete is not in this version")


def history() -> list[dict[str, Any]]:
    root = Root(terms(aggregate=("count", "avg")), CELLS)
    root.stable(1)
    root.tentative(2, ["room-2"])
    root.stable(3)
    return root.records


def test_results_as_lines() -> None:
    lines = [tables.line(record) for record in history()]
    assert lines[0] == "stable    1970-01-01 00:16:40        a            x count=5 avg=2"
    assert "without room-2" in lines[3]
    assert any(line.startswith("undo      1970-01-01 00:16:41") for line in lines)
    assert any("part 0: 2 rows" in line for line in lines)
    assert lines[-1] == "rec_done  epoch 1, part 0: all is corrected"


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


def test_the_picture_knows_each_window_that_a_run_of_empty_ones_replaces() -> None:
    """What was in them was a reading whose place is elsewhere, or nothing at all."""
    board = Board("climate", 1_000_000, ("x", "avg"), windows_max=3)

    def window(start: int, label: Label, windows: int = 1) -> None:
        line = encode_boundary(
            query="climate", part=0, seq=0, epoch=0, label=label, windows=windows, keys=0,
            window_start=start * 1_000_000, window_end=(start + windows) * 1_000_000,
            due_at=0, emitted_at=0,
        )  # fmt: skip
        board.apply(parse_result(line), 0)

    for start in (1, 2, 3):
        window(start, "tentative")
    undo = encode_undo(
        query="climate", part=0, seq=0, epoch=1,
        undo_from=1_000_000, undo_to=3_000_000, emitted_at=0,
    )  # fmt: skip
    board.apply(parse_result(undo), 0)
    window(0, "stable", windows=5)
    assert board.counts == {"exact": 2, "tentative": 3, "undone": 3, "corrected": 3}
    assert {at: line.state for at, line in board.lines.items()} == dict.fromkeys(
        (1_000_000, 2_000_000, 3_000_000), "corrected"
    )


def test_a_pipe_gets_lines() -> None:
    said: list[str] = []
    plain = PlainLines(Board("climate", 1_000_000, ("x", "avg")), ["a"], said.append)
    for record in history():
        plain.saw(record, 0)
    assert said[0] == "00:16:40  a   2.00  exact"
    assert said[1] == "00:16:41  a   2.00  tentative, without room-2"
    assert said[3] == "00:16:41  to 00:16:42 undone, exact answers follow"
    assert said[-1].strip() == "all is corrected"


def test_status_says_which_query_has_lost_readings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def beat(process: str, gaps: int) -> Heartbeat:
        return Heartbeat(process, 7, 0, 0, 0, True, {}, (), {"seq": 9, "gaps": gaps})

    beats = [beat("root/my.query.0", 2), beat("root/my.query.1", 1), beat("root/whole.0", 0)]
    heard = {b.process: b for b in beats}, {b.process: 0.0 for b in beats}
    monkeypatch.setattr("slackwater.cli.show._listen", lambda _: heard)
    monkeypatch.setattr("slackwater.runtime.broker.answers", lambda *_: True)

    code, out, _ = run(monkeypatch, capsys, "status", "--bootstrap", "h:1")

    told = [line for line in out.splitlines() if line.startswith("query ")]
    assert told == ["query my.query: 3 windows lack readings that are lost; they say so in"]
    assert "slackwater results my.query --kind gap" in out
    assert code == 0
