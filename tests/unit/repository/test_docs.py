"""The documents match the repository: links are valid, named tests and modules exist.

A page that is not checked is wrong after the first rename.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from slackwater.cli import app as cli
from slackwater.client.follow import KINDS
from slackwater.deployment.parse import load_deployment
from slackwater.exporter import controllers, metrics
from slackwater.model.durations import parse_duration_us
from slackwater.rehearsal.plan import make_plan
from slackwater.runtime.service.settings import PREFIX, Settings

ROOT = Path(__file__).parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "schemas/README.md",
    ROOT / "tests/README.md",
]
README = (ROOT / "README.md").read_text()
STEPS = (ROOT / "docs/howto/your-own-data.md").read_text()
COMMANDS = (ROOT / "docs/reference/commands.md").read_text()
TRACES = [*range(1, 76), 80, 81, 82, 83]
RULES = (ROOT / "docs/protocols/rules.md").read_text()
MAPS = {"dpc.md": "test_dpc.py", "fargo.md": "test_fargo.py"}
ids = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())

    lost = [link for link in links if not (document.parent / link).exists()]

    assert not lost


def test_no_two_decisions_have_one_number_and_each_is_listed_once() -> None:
    folder = ROOT / "docs/decisions"
    files = [path.name for path in sorted(folder.glob("[0-9]*.md"))]
    numbers = [int(name[:4]) for name in files]
    listed = re.findall(
        r"^\| (\d+) \| \[.*\]\((\S+)\) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )

    assert len(set(numbers)) == len(numbers)
    assert sorted(name for _, name in listed) == files
    assert [name for number, name in listed if int(number) != int(name[:4])] == []


def test_every_rule_and_every_trace_is_stated_once() -> None:
    rules = [int(n) for n in re.findall(r"^(\d+)\. ", RULES, re.MULTILINE)]
    traces = [int(n) for n in re.findall(r"^\*\*trace-(\d+)\. ", RULES, re.MULTILINE)]

    assert rules == list(range(1, 39))
    assert sorted(traces) == TRACES


def test_every_trace_has_its_tests_or_a_reason_why_not() -> None:
    rows = re.findall(r"^\| (trace-\d+(?:, trace-\d+)*) \| (.*) \|$", RULES, re.MULTILINE)
    traces = [int(n) for names, _ in rows for n in re.findall(r"\d+", names)]
    named = [quoted for _, tests in rows for quoted in re.findall(r"`([^`]+)`", tests)]

    lost = [quoted for quoted in named if not list((ROOT / "tests").glob(quoted))]
    silent = [names for names, tests in rows if "`" not in tests and "version" not in tests]

    assert traces == TRACES
    assert not lost
    assert not silent


@pytest.mark.parametrize(
    ("name", "rows_min"),
    [
        ("explanation/a-correction.md", 9),
        ("explanation/a-changed-query.md", 11),
        ("explanation/a-start.md", 9),
        ("architecture.md", 9),
    ],
)
def test_a_table_of_modules_names_their_functions(name: str, rows_min: int) -> None:
    page = ROOT / "docs" / name
    rows = [row for row in page.read_text().splitlines() if re.match(r"\| .*\.py\) \| `", row)]
    assert len(rows) >= rows_min

    lost = []
    for row in rows:
        modules, functions = row.split(" | ")[-2:]
        paths = re.findall(r"\]\(([^)]+)\)", modules)
        text = "".join((page.parent / path).read_text() for path in paths)
        lost += [f for f in re.findall(r"`(\w+)`", functions) if f"def {f}(" not in text]
    assert not lost


@pytest.mark.parametrize("name", MAPS)
def test_the_map_of_a_paper_names_tests_and_modules_that_exist(name: str) -> None:
    text = (ROOT / "docs/protocols" / name).read_text()
    paper = (ROOT / "tests/paper" / MAPS[name]).read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| .*(dpc|fargo)-\d+ \| ", line)]
    assert len(rows) in (12, 18)

    lost = []
    for row in rows:
        for quoted in re.findall(r"`([^`]+)`", row):
            if re.fullmatch(r"[0-9]_[0-9a-z_]*\*", quoted):
                found = f"def test_{quoted.rstrip('*')}" in paper
            elif re.search(r"(^|/)test_", quoted):
                folders = ("tests/scenarios", "tests", "tests/paper")
                found = any(list((ROOT / folder).glob(quoted)) for folder in folders)
            elif re.search(r"\.py$|/$", quoted):
                here = ROOT / "services/slackwater"
                roots = (here, ROOT / "spark", *(p.parent for p in here.rglob("__init__.py")))
                found = any((root / quoted).exists() for root in roots)
            else:
                continue
            if not found:
                lost.append(quoted)
    assert not lost


def test_the_page_of_commands_lists_every_command() -> None:
    tree: Any = get_command(cli.app)
    commands = {
        f"{name} {sub}".strip()
        for name, command in tree.commands.items()
        for sub in getattr(command, "commands", {"": None})
    }
    listed: set[str] = set()
    for row in re.findall(r"^\| (`slackwater [^|]*) \|", COMMANDS, re.MULTILINE):
        first, *more = re.findall(r"`([^`]+)`", row)
        words = [word for word in first.split()[1:] if word.islower()]
        listed |= {" ".join(words), *(f"{words[0]} {other}" for other in more)}

    assert listed == commands


def merged(page: str) -> str:
    """Merge later snippets into the first, as a user does."""
    yaml = YAML(typ="safe")
    complete: dict[str, Any] = {}
    for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL):
        for name, value in yaml.load(text).items():
            complete[name] = (
                {**complete.get(name, {}), **value} if isinstance(value, dict) else value
            )
    return json.dumps(complete)


def test_all_yaml_of_the_tutorial_is_one_deployment(tmp_path: Path) -> None:
    shown = tmp_path / "rooms.yaml"
    shown.write_text(merged((ROOT / "docs/tutorial.md").read_text()))

    assert load_deployment(shown).queries.keys() == {"climate", "lab-averages"}


def test_all_yaml_of_the_steps_is_one_deployment(tmp_path: Path) -> None:
    (tmp_path / "rooms.yaml").write_text(merged(STEPS))

    deployment = load_deployment(tmp_path / "rooms.yaml")

    assert deployment.queries.keys() == {"climate", "lab-minutes", "pairs", "worst"}
    assert deployment.source_streams("lab-minutes") == ("lab",)


def test_the_readme_fits_a_sitting() -> None:
    assert len(README.splitlines()) <= 200


@pytest.mark.parametrize(
    "document",
    ["README.md", "docs/deployment-file.md", "docs/tutorial.md", "docs/howto/your-own-data.md"],
)
def test_the_deployment_files_shown_are_valid(document: str, tmp_path: Path) -> None:
    (first, *_) = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    shown = tmp_path / "shown.yaml"
    shown.write_text(first)

    assert load_deployment(shown).queries


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_commands_of_a_page_exist_with_their_options(document: Path) -> None:
    """Those in blocks of code, and those in sentences that have an option."""
    tree: Any = get_command(cli.app)
    unknown = []
    text = document.read_text()
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.DOTALL | re.MULTILINE)
    sentences = re.findall(r"(?<!`)`(slackwater [a-z][^`]* --[^`]*)`(?!`)", text)
    for block in [*blocks, *(" ".join(each.split()) for each in sentences)]:
        for line in block.replace("\\\n", " ").splitlines():
            call = re.match(r"^ *slackwater +([^#|]*)", line)
            if call is None:
                continue
            name, *more = call[1].split()
            command = tree.commands.get(name)
            if hasattr(command, "commands"):
                runs_alone = getattr(command, "invoke_without_command", False)
                command = command.commands.get(more[0], command if runs_alone else None)
            options = {"--help"}.union(*(p.opts for p in command.params)) if command else set()
            given = {word for word in more if word.startswith("--")}
            if command is None or given - options:
                unknown.append(line)
    assert not unknown


def test_the_page_on_metrics_lists_each_metric() -> None:
    source = "".join(Path(str(each.__file__)).read_text() for each in (metrics, controllers))
    found = set(re.findall(r'"(slackwater_[a-z_]+)"', source))
    counters = set(re.findall(r'Counter\(\s*"(slackwater_[a-z_]+)"', source))
    exported = (found - counters) | {f"{name}_total" for name in counters}
    page = (ROOT / "docs/reference/metrics.md").read_text()

    assert len(counters) == 4
    assert set(re.findall(r"^\| `(slackwater_[a-z_]+)` \|", page, re.MULTILINE)) == exported


def test_the_page_on_results_lists_each_kind() -> None:
    page = (ROOT / "docs/reference/results.md").read_text()

    assert set(re.findall(r"^\| `([a-z_]+)` \|", page, re.MULTILINE)) == KINDS


def test_the_page_on_settings_lists_each_variable() -> None:
    page = (ROOT / "docs/reference/settings.md").read_text()
    listed = set(re.findall(rf"^\| `{PREFIX}([A-Z_]+)` \|", page, re.MULTILINE))

    assert listed == {name.upper() for name in Settings.model_fields}


def test_the_rehearsal_of_the_tutorial_can_be_planned(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial.md").read_text()
    (call,) = re.findall(r"^slackwater rehearse (.*?[^\\])$", page, re.DOTALL | re.MULTILINE)
    file, *words = shlex.split(call.replace("\\\n", " "))
    assert file == "rooms.yaml"
    options = dict(zip(words[::2], words[1::2], strict=True))  # the last --input represents both
    files = {f"room-{n}": ROOT / f"tests/data/room_climate/node-{n}.csv.gz" for n in (1, 2)}
    (tmp_path / "rooms.yaml").write_text(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])

    plan = make_plan(
        load_deployment(tmp_path / "rooms.yaml"),
        files,
        speed=float(options["--speed"]),
        duration_us=parse_duration_us(options["--duration"]),
        faults=[options["--fault"]],
        seed=0,
        processes=[],
    )

    assert plan.replay_us == 20_000_000
    assert [fault.target for fault in plan.faults] == ["room-2"]
