"""The shape of the code: limits for modules and classes, constructors without I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[3]

MODULE_LINES_MAX: Final = 500
CLASS_LINES_MAX: Final = 350

CONSTRUCTORS: Final = ("__init__", "__post_init__")
IO_CALLS: Final = frozenset(
    {
        "open", "connect", "socket", "create_connection", "Popen", "run", "spawn", "mkdir",
        "makedirs", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "sleep",
        "poll", "flush", "list_topics", "urlopen",
    }
)  # fmt: skip
"""Calls by these names wait for a disk, a network or another process."""


def _trees() -> Iterator[tuple[Path, ast.Module, int]]:
    for folder in ("services", "spark"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            yield path, ast.parse(text), len(text.splitlines())


def test_modules_and_classes_fit_a_sitting() -> None:
    long = set()
    for path, tree, lines in _trees():
        if lines > MODULE_LINES_MAX:
            long.add(path.stem)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and _lines(node) > CLASS_LINES_MAX:
                long.add(node.name)
    assert not long


def test_unit_tests_are_in_the_folder_of_the_package_that_they_test() -> None:
    """Folders beside the packages.

    ``bench``, ``repository``, ``spark``, ``support`` of the tests.
    """
    unit = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(unit).as_posix() for path in unit.rglob("test_*.py")}
    packages = ROOT / "services" / "slackwater"
    missing = {folder for folder in folders if not (packages / folder).is_dir()}
    assert missing == {"bench", "repository", "spark", "support"}
    assert "." not in folders


def test_constructors_do_no_io() -> None:
    loud = set()
    for _, tree, _ in _trees():
        for owner in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for method in owner.body:
                if isinstance(method, ast.FunctionDef) and method.name in CONSTRUCTORS:
                    calls = (node for node in ast.walk(method) if isinstance(node, ast.Call))
                    if any(_name(call.func) in IO_CALLS for call in calls):
                        loud.add(owner.name)
    assert not loud


def _lines(node: ast.ClassDef) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


def _name(function: ast.expr) -> str:
    match function:
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""
