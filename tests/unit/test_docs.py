"""The documents say what is there: links lead somewhere, named tests and modules exist.

A map that is not checked is wrong after the first rename.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from typer.main import get_command

from slackwater.cli import app as cli
from slackwater.deployment.parse import load_deployment

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "schemas/README.md",
    ROOT / "tests/README.md",
]
README = (ROOT / "README.md").read_text()
RULES = (ROOT / "docs/protocols/rules.md").read_text()
MAPS = {"dpc.md": "test_dpc.py", "fargo.md": "test_fargo.py"}
ids = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_links_lead_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text())

    lost = [link for link in links if not (document.parent / link).exists()]

    assert not lost


def test_every_rule_and_every_trace_is_stated_once() -> None:
    rules = [int(n) for n in re.findall(r"^(\d+)\. ", RULES, re.MULTILINE)]
    traces = [int(n) for n in re.findall(r"^\*\*trace-(\d+)\. ", RULES, re.MULTILINE)]

    assert rules == list(range(1, 29))
    assert sorted(traces) == list(range(1, 39))


def test_every_trace_has_its_tests_or_says_why_not() -> None:
    rows = re.findall(r"^\| (trace-\d+(?:, trace-\d+)*) \| (.*) \|$", RULES, re.MULTILINE)
    traces = [int(n) for names, _ in rows for n in re.findall(r"\d+", names)]
    named = [quoted for _, tests in rows for quoted in re.findall(r"`([^`]+)`", tests)]

    lost = [quoted for quoted in named if not list((ROOT / "tests").glob(quoted))]
    silent = [names for names, tests in rows if "`" not in tests and "version" not in tests]

    assert traces == list(range(1, 39))
    assert not lost
    assert not silent


@pytest.mark.parametrize("name", MAPS)
def test_the_map_of_a_paper_names_tests_and_modules_that_exist(name: str) -> None:
    text = (ROOT / "docs/protocols" / name).read_text()
    paper = (ROOT / "tests/paper" / MAPS[name]).read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| .*(dpc|fargo)-\d+ \| ", line)]
    assert len(rows) in (11, 18)

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


def test_the_readme_lists_every_command() -> None:
    tree: Any = get_command(cli.app)
    refused = {"query apply", "query delete"}  # told under the limits
    commands = {
        f"{name} {sub}".strip()
        for name, command in tree.commands.items()
        for sub in getattr(command, "commands", {"": None})
    }
    listed: set[str] = set()
    for row in re.findall(r"^\| (`slackwater [^|]*) \|", README, re.MULTILINE):
        first, *more = re.findall(r"`([^`]+)`", row)
        words = [word for word in first.split()[1:] if word.islower()]
        listed |= {" ".join(words), *(f"{words[0]} {other}" for other in more)}

    assert listed == commands - refused
    assert all(f"`{name}`" in README or name.split()[1] in README for name in refused)


def test_all_yaml_of_the_readme_is_one_deployment(tmp_path: Path) -> None:
    """The later snippets are what a user adds to the first."""
    yaml = YAML(typ="safe")
    complete: dict[str, Any] = {}
    for text in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL):
        for name, value in yaml.load(text).items():
            complete[name] = (
                {**complete.get(name, {}), **value} if isinstance(value, dict) else value
            )
    (tmp_path / "rooms.yaml").write_text(json.dumps(complete))

    deployment = load_deployment(tmp_path / "rooms.yaml")

    assert deployment.queries.keys() == {"climate", "lab-minutes", "pairs", "worst"}
    assert deployment.source_streams("lab-minutes") == ("lab",)


@pytest.mark.parametrize("document", ["README.md", "docs/deployment-file.md"])
def test_the_deployment_files_shown_are_valid(document: str, tmp_path: Path) -> None:
    (first, *_) = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    shown = tmp_path / "shown.yaml"
    shown.write_text(first)

    assert load_deployment(shown).queries
