"""The table of aggregates is the only place that names them, and the page has its rows."""

from __future__ import annotations

import ast
from pathlib import Path

from slackwater.primitives import exact
from slackwater.primitives.aggregates import AGGREGATES, PARAMETERISED

ROOT = Path(__file__).parents[3]
PLAIN = {name: each for name, each in AGGREGATES.items() if name[-1:].isalpha()}
"""Those without a parameter; a name like p50 enters the table when it is looked up."""
TABLE = ROOT / "services" / "slackwater" / "primitives" / "aggregates.py"


def test_the_page_of_the_deployment_file_has_a_row_for_each() -> None:
    page = (ROOT / "docs" / "deployment-file.md").read_text()
    section = page.split("### Aggregates\n")[1].split("<!-- states")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {each.text} | {each.count_min} |" for name, each in PLAIN.items()
    ] + [
        f"| `{each.written}` | {each.text} | {least} |"
        for each, least in zip(PARAMETERISED.values(), ("1", "1, 2, 3"), strict=True)
    ]


def test_no_other_module_decides_by_the_name_of_an_aggregate() -> None:
    """Names that are also words of Python or of figures would be found everywhere."""
    names = {"range", "var", "stddev"}
    assert names < set(AGGREGATES)
    found = {
        path: names & _texts(ast.parse(path.read_text()))
        for folder in ("services", "spark")
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {path for path, those in found.items() if those} == {TABLE}
    assert found[TABLE] == names


def _texts(tree: ast.AST) -> set[object]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}


def test_the_judge_s_formulas_are_its_own() -> None:
    """They import the standard library only; ``math`` and ``fractions`` are exact."""
    tree = ast.parse(Path(exact.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert modules == {
        "__future__", "collections.abc", "dataclasses", "fractions", "math",
    }  # fmt: skip
