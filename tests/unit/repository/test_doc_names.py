"""Names in code font exist: in the pages of the protocols all of them, elsewhere ``Class.method``.

A page of a protocol maps a paper to modules, functions, classes and tests. Most of those names
stand alone (``_observe``, ``iii_a_view_*``), and a rename would leave them behind. In all pages, a
name of the form ``Class.member`` is looked up in the class and in the classes it inherits from.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("services", "spark", "tests", "bench", "docs")
PROTOCOLS: Final = [
    ROOT / "docs/protocols" / name for name in ("iads.md", "flux.md", "dpc.md", "fargo.md")
]
PAGES: Final = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")),
    ROOT / "bench/README.md",
]
BASES: Final = ("", "services", "services/slackwater", "spark", "tests", "tests/scenarios")
"""A path in a page starts at one of these, or at a package below ``services/slackwater``."""

CODE: Final = re.compile(r"(?<!`)`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")
MEMBER: Final = re.compile(r"(?<![\w./])([A-Z]\w*[a-z]\w*)\.([a-z_]\w*)(?![\w/])")
TARGETS: Final = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
COMMAND: Final = re.compile(rf"(slackwater|python -m) |make ({'|'.join(TARGETS)})\b")
SCHEMA_FIELD: Final = re.compile(r'"name": "(\w+)"')
IN_MODULE: Final = re.compile(r"`([\w/]+\.py)` \(([^()]*)\)")
OF_OTHERS: Final = {
    "WatermarkOutput.emitWatermark": "Flink",
    "gcs.view": "the paper on IADS, Figure 4",
    "refresh_p(set, x)": "the paper on IADS, Figure 2",
    "send state": "the paper on IADS, Figure 4",
    "st msg": "the paper on IADS, Figure 4",
    "States Await": "the paper on IADS, Figure 4",
}
"""A name in a page that is not ours -> whose it is."""


@dataclass
class Names:
    """The names that modules define."""

    modules: dict[str, set[str]] = field(default_factory=dict)
    """Path -> functions, classes, fields and constants of the module."""
    members: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Class -> its methods, fields and attributes."""
    bases: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def add(self, path: str, text: str) -> None:
        """Add the names of one module."""
        tree = ast.parse(text)
        self.modules[path] = set(_defined(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                self.members[node.name] |= set(_defined(node))
                self.bases[node.name] |= {_last(base) for base in node.bases}

    def has_member(self, cls: str, member: str) -> bool:
        """Return whether a class, or a class of ours it inherits from, has the member."""
        todo, seen = [cls], set[str]()
        while todo:
            name = todo.pop()
            if name in seen or name not in self.members:
                continue
            seen.add(name)
            if member in self.members[name]:
                return True
            todo += self.bases[name]
        return False

    def is_defined(self, name: str) -> bool:
        """Return whether any module defines the name."""
        return any(name in names for names in self.modules.values())


def _last(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        base = base.value
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):  # first, since most nodes with a name are one
            if isinstance(node.ctx, ast.Store):
                yield node.attr
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign):
            if isinstance(node.target, ast.Name):
                yield node.target.id
        elif isinstance(node, ast.Assign):
            yield from (name.id for name in node.targets if isinstance(name, ast.Name))


@cache
def names() -> Names:
    """Return the names of the repository; a schema counts as a module of its fields."""
    found = Names()
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.add(str(path.relative_to(ROOT)), path.read_text())
    for path in sorted((ROOT / "schemas").glob("*.avsc")):
        found.modules[str(path.relative_to(ROOT))] = set(SCHEMA_FIELD.findall(path.read_text()))
    return found


@cache
def folders() -> list[Path]:
    """Return the folders at which a path in a page may start."""
    packages = (path.parent for path in (ROOT / "services/slackwater").rglob("__init__.py"))
    return [*(ROOT / base for base in BASES), *packages]


def paths(quoted: str) -> list[Path]:
    """Return the files and folders that a page may mean by a path or a pattern."""
    if quoted.startswith("test_") and "/" not in quoted:
        return list((ROOT / "tests").rglob(quoted))
    return [path for folder in folders() for path in folder.glob(quoted.rstrip("/"))]


def quoted_names(text: str) -> Iterator[str]:
    """Return what a page has in code font, without blocks of code."""
    text = re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (" ".join(quoted.split()) for quoted in CODE.findall(text))


def exists(quoted: str) -> bool:
    """Return whether a name of a protocol's page exists."""
    if quoted in OF_OTHERS or COMMAND.match(quoted):
        return True
    file, found, test = quoted.partition("::")
    if found:
        test = test.replace("<section>_...", "*")
        return any(_tests(path.read_text(), test) for path in paths(file))
    if "/" in quoted or re.search(r"\.py$|^test_[rd]\d\d", quoted):
        return bool(paths(quoted))
    if quoted.endswith("*"):
        return any(_tests(path.read_text(), quoted) for path in paths("paper/test_*.py"))
    if member := MEMBER.fullmatch(quoted):
        return names().has_member(*member.groups())
    return any(names().is_defined(name) for name in (quoted, f"test_{quoted}"))


def _tests(text: str, pattern: str) -> bool:
    name = re.escape(pattern.removeprefix("test_")).replace(r"\*", r"\w*")
    return bool(re.search(rf"^ *(async )?def test_{name}\(", text, re.MULTILINE))


def lost_names(text: str) -> list[str]:
    """Return the names of a protocol's page that do not exist, or not in the module stated."""
    lost = {quoted for quoted in quoted_names(text) if not exists(quoted)}
    for file, inside in IN_MODULE.findall(text):
        known = [names().modules.get(str(path.relative_to(ROOT)), set()) for path in paths(file)]
        for name in re.findall(r"`(\w+)`", inside):
            if known and not any(name in module for module in known):
                lost.add(f"{name} in {file}")
    return sorted(lost)


def lost_members(text: str) -> list[str]:
    """Return each ``Class.member`` of a page that does not exist."""
    return sorted(
        f"{cls}.{member}"
        for quoted in quoted_names(text)
        for cls, member in MEMBER.findall(quoted)
        if f"{cls}.{member}" not in OF_OTHERS and not names().has_member(cls, member)
    )


@pytest.mark.parametrize("page", PROTOCOLS, ids=lambda page: page.name)
def test_all_names_in_a_page_of_a_protocol_exist(page: Path) -> None:
    assert lost_names(page.read_text()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_members_of_classes_in_a_page_exist(page: Path) -> None:
    assert lost_members(page.read_text()) == []


@pytest.mark.parametrize(
    "quoted",
    ["_obsreve", "Schedul", "endpoints.py", "protocols/dpc/endpoint.py", "iii_a_wiew_*",
     "test_dpc.py::test_4_5_a_restarted_rot_*", "tests/paper/test_iad.py::test_<section>_...",
     "scenarios/test_r99_*", "test_r99_*", "AnswerPlanner.plans", "AnswerPlaner.plan",
     "linearizable_while_stabel", "make_answer", "make papers", "merge\nof"],
)  # fmt: skip
def test_a_wrong_name_is_reported(quoted: str) -> None:
    assert lost_names(f"| a row (`Schedule`, `{quoted}`) |") == [" ".join(quoted.split())]


def test_a_name_of_another_module_is_reported() -> None:
    text = "`endpoint.py` (`_observe`, `suspicion`), `protocols/common/line.py` (`Policy`)"

    assert lost_names(text.replace("suspicion", "Schedule")) == ["Schedule in endpoint.py"]


def test_a_wrong_member_is_reported() -> None:
    text = "`JsonReader.reading_off(text)`, `Slice.of`, `docs.rs`, `Kafka.py/x`, and Slice.off"

    assert lost_members(text) == ["JsonReader.reading_off"]


def test_an_inherited_member_is_found() -> None:
    known = Names()
    known.add("a.py", "class Base(Generic[T]):\n    def shared(self): self.set_here = 1\n")
    known.add("b.py", "class Leaf(a.Base[int]):\n    own: int\n")

    assert all(known.has_member("Leaf", name) for name in ("own", "shared", "set_here"))
    assert not known.has_member("Leaf", "absent")


def test_each_name_of_others_is_still_quoted() -> None:
    quoted = {name for page in PAGES for name in quoted_names(page.read_text())}

    assert set(OF_OTHERS) - quoted == set()
