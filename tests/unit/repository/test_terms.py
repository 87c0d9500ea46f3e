"""Identifiers are standard terms: none of the replaced names is left.

The table has each old word and its replacement; ``docs/reference/glossary.md`` defines the new
ones. There are three kinds of words: parts that no identifier may have, words that may name a local
variable (they are plain English there) but no class, function, attribute or constant, and whole
names. A class name belongs to one class.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = ("services", "spark", "tests", "bench")

PARTS: Final = {
    "says": "update",
    "said": "emitted, reported, logged; a slice that a replica holds of a bucket is its version",
    "unsaid": "unreported, unlogged",
    "told": "reported; of a signal: on_signal",
    "untold": "unreported",
    "hear": "observe, receive",
    "hears": "receives",
    "heard": "latest, received; when: last_heartbeat",
    "mute": "suppress_tentative, suppress_until",
    "promise": "watermark",
    "promises": "watermarks",
    "promised": "advance_watermark",
    "stray": "pending_gap; of bytes of others: foreign",
    "torn": "missing_from, pending_gap",
    "holed": "has_hole",
    "felt": "affected",
    "mend": "adopt_stable_state",
    "mends": "adopt_stable_state",
    "wholes": "contiguous_seqs",
    "whole": "contiguous_seq, complete",
    "aside": "future_buffer, dead_letters",
    "apart": "max_skew, spacing, is_forked",
    "hungry": "needs_input",
    "rivals": "alternatives",
    "rival": "alternative",
    "knock": "probe",
    "bearable": "clamp",
    "nobody": "unknown, no_peers",
    "e0": "start_time",
    "hurt": "input_missing; in the simulator: outage",
    "beyond": "late, excess, past",
    "together": "merge",
}
"""Part of an identifier (``last_said``, ``TOLD_MIN``, ``_Said``) -> its replacement."""

MEMBERS: Final = {
    "behind": "next_position, end, lag, passed",
    "floor": "prev_watermark, input_watermark",
    "second": "deferred",
    "word": "status",
    "words": "statuses",
    "trail": "replay_positions",
    "honest": "check_missing",
    "terms": "expectations",
}
"""Allowed for a local variable, too vague for other names."""

NAMES: Final = {
    "Word": "PeerStatus",
    "Turns": "WakeSignal",
    "Trail": "ReplayPositions",
    "Terms": "Expectations",
    "Unread": "NullCursor",
    "Asked": "EndOffsets",
    "Figures": "AggregateColumns, ExactAggregates",
    "Chunk": "SourceChunk, ResultChunk",
    "Context": "ProcessContext, InputContext",
    "Answer": "ResultRows, AnswerTentatively, AnsweredRun",
    "Piece": "DeltaPiece, BucketPiece, FilePiece",
    "Reading": "FileReading, MessageReading, ResultReading, SensorReading",
    "say_again": "replay_from",
}
"""A definition with exactly this name."""

EXCEPTIONS: Final = {
    ("honest.py", "*"): "guarantee-3 is called so",
    ("clock.py", "SECOND"): "the unit of time",
    ("test_clock.py", "SECOND"): "the unit of time",
    ("reader_that_dies.py", "WORD"): "a word of a text",
    ("test_expression_names.py", "WORDS"): "reserved words of SQL",
    ("expression_tree.py", "terms"): "of a sum",
    ("expressions.py", "_terms"): "of a sum",
    ("registry.py", "e0_us"): "the key of a definition in the registry",
}
"""(module, name): the reason why it is allowed."""


class Name(NamedTuple):
    """An identifier at a place; ``member``: other modules can use it."""

    file: str
    line: int
    name: str
    member: bool
    defines: bool


def parts(name: str) -> set[str]:
    """Split a name: ``HEARD_BYTES_MAX`` and ``lastHeard`` have the part ``heard``."""
    found = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*", name)
    return {part.lower() for part in found} | {part.lower() for part in name.split("_")}


def names_of(text: str, file: str) -> Iterator[Name]:
    """Return all names that a module defines, and the attributes that it uses."""
    tree = ast.parse(text)
    outer = {id(target) for s in tree.body for target in _targets(s)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            outer |= {id(target) for s in node.body for target in _targets(s)}
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield Name(file, node.lineno, name, not name.startswith("test_"), True)
            case ast.AsyncFunctionDef(name=name):
                yield Name(file, node.lineno, name, not name.startswith("test_"), True)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield Name(file, node.lineno, name, True, False)
            case ast.Name(id=name, ctx=ast.Store()):
                yield Name(file, node.lineno, name, id(node) in outer, id(node) in outer)
            case ast.arg(arg=name):
                yield Name(file, node.lineno, name, False, False)


def _targets(statement: ast.stmt) -> list[ast.expr]:
    match statement:
        case ast.Assign(targets=targets):
            return [name for target in targets for name in ast.walk(target)
                    if isinstance(name, ast.Name)]  # fmt: skip
        case ast.AnnAssign(target=target):
            return [target]
    return []


def offenders(text: str, file: str) -> Iterator[str]:
    """Return the names that contain a replaced word, with its replacement."""
    for at in names_of(text, file):
        module = file.rpartition("/")[2]
        if (module, "*") in EXCEPTIONS or (module, at.name) in EXCEPTIONS:
            continue
        if at.name.startswith("test_"):
            continue  # a sentence
        found = {part: PARTS[part] for part in parts(at.name) if part in PARTS}
        if at.member and at.name.lower().strip("_") in MEMBERS:
            found[at.name] = MEMBERS[at.name.lower().strip("_")]
        if at.defines and at.name in NAMES:
            found[at.name] = NAMES[at.name]
        for old, new in found.items():
            yield f"{file}:{at.line}: {at.name} ({old}): rather {new}"


def sources() -> list[Path]:
    """Return the modules of the product, its tests and benches."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def test_no_identifier_is_of_the_private_dialect() -> None:
    found = [
        what
        for path in sources()
        for what in offenders(path.read_text(), str(path.relative_to(ROOT)))
    ]
    assert found == []


def test_a_class_name_belongs_to_one_class() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in sources():
        file = str(path.relative_to(ROOT))
        if file.startswith(("services/", "spark/")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(f"{file}:{node.lineno}")
    assert {name: at for name, at in places.items() if len(at) > 1} == {}


def test_constants_of_the_product_are_upper_case() -> None:
    found = []
    for path in sources():
        file = str(path.relative_to(ROOT))
        if not file.startswith(("services/", "spark/")):
            continue
        for statement in ast.parse(path.read_text()).body:
            value = getattr(statement, "value", None)
            if isinstance(value, ast.Constant) and isinstance(value.value, int | float):
                names = [n.id for n in _targets(statement) if isinstance(n, ast.Name)]
                found += [f"{file}: {name}" for name in names if name != name.upper()]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["def says(): ...", "class Said: ...", "x.heard_at = 1", "TOLD_MIN = 3", "lambda whole: whole",
     "class A:\n    second: int", "class Turns: ...", "def behind(record): ..."],
)  # fmt: skip
def test_an_offender_is_found(text: str) -> None:
    assert list(offenders(text, "x.py"))


@pytest.mark.parametrize("text", ["def f():\n    first, second = 1, 2", "essay = 1", "x.floor(2)"])
def test_plain_english_is_let_alone(text: str) -> None:
    assert not list(offenders(text, "x.py"))


def test_each_exception_is_still_needed() -> None:
    texts: defaultdict[str, str] = defaultdict(str)
    for path in sources():
        texts[path.name] += path.read_text()
    for module, name in EXCEPTIONS:
        assert texts[module], f"{module} is gone"
        assert name == "*" or re.search(rf"\b{name}\b", texts[module]), f"{module}: no {name}"
