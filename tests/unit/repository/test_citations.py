"""Every citation names an existing rule, trace, guarantee or paper row, in the one valid form.

A code is defined by an anchor (``<a id="rule-12"></a>``) in a page of ``docs/protocols``: ``rule``,
``trace`` and ``guarantee`` in ``rules.md``, ``dpc``, ``fargo``, ``flux`` and ``iads`` in the page
of the paper. Every citation in code, tests, schemas and pages must have one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
KINDS: Final = ("rule", "trace", "guarantee", "dpc", "fargo", "flux", "iads")
UNUSED: Final = {("trace", n) for n in range(76, 80)}
"""Numbers that no page has."""
FOLDERS: Final = ("services", "spark", "tests", "bench", "compose", "docs", "schemas")
ENDINGS: Final = {".py", ".md", ".toml", ".avsc", ".yaml"}
ANCHOR: Final = re.compile(r'<a id="((?:rule|trace|guarantee|dpc|fargo|flux|iads)-\d+)"></a>')
CITED: Final = re.compile(rf"(?<![\w/-])((?:{'|'.join(KINDS)})-\d+)(?![\w]|-\d)")
OLD: Final = re.compile(
    r"(?<![\w/`.<-])(?:[Rr]ules?|[Gg]uarantees?|[Tt]races?)\s+(?:#\s+)?\d+\b"
    r"|(?<![\w/`.<'\"-])[RGD]\d{1,2}\b(?![-.]\d|\()"
    r"|\"\"\"[RGD]\d{1,2}\b"
)
"""A letter for a kind, or a word and a number: earlier forms of citations."""
EXCUSED: Final = {"tests/unit/repository/test_citations.py": "it has both forms as examples"}


def documents() -> list[Path]:
    """Return written documents: without recorded schemas and test data."""
    found = [ROOT / "README.md", ROOT / "Makefile", ROOT / "pyproject.toml"]
    for folder in FOLDERS:
        found += (p for p in (ROOT / folder).rglob("*") if p.suffix in ENDINGS)
    return sorted(
        path
        for path in found
        if "recorded" not in path.parts and str(path.relative_to(ROOT)) not in EXCUSED
    )


def defined() -> Counter[str]:
    """Return every code, with its number of anchors."""
    pages = (ROOT / "docs" / "protocols").glob("*.md")
    return Counter(code for page in pages for code in ANCHOR.findall(page.read_text()))


def offenders(text: str, codes: set[str]) -> Iterator[str]:
    """Return citations of unknown codes, and citations in another form."""
    for match in CITED.finditer(text):
        if match[1] not in codes:
            yield f"line {text.count(chr(10), 0, match.start()) + 1}: no page defines {match[1]}"
    for match in OLD.finditer(text):
        yield f"line {text.count(chr(10), 0, match.start()) + 1}: {match[0]!r} is not a code"


def test_every_code_is_defined_once_and_none_is_left_out() -> None:
    codes = defined()
    assert {code: n for code, n in codes.items() if n > 1} == {}
    for kind in KINDS:
        numbers = sorted(int(code.rpartition("-")[2]) for code in codes if code.startswith(kind))
        assert numbers, kind
        wanted = [n for n in range(1, numbers[-1] + 1) if (kind, n) not in UNUSED]
        assert numbers == wanted, f"{kind}: a number is missing"


def test_every_citation_resolves_and_has_the_one_form() -> None:
    codes = set(defined())
    found = [
        f"{path.relative_to(ROOT)}, {what}"
        for path in documents()
        for what in offenders(path.read_text(), codes)
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["(rule-99)", "trace-0", "see guarantee-7.", "rule 12", "Rules 10 and 11", '"""R5: grows"""',
     "memory (G5)", "# rule\n# 12", "row D9"],
)  # fmt: skip
def test_an_offender_is_found(text: str) -> None:
    assert list(offenders(text, set(defined())))


@pytest.mark.parametrize("text", ["(rule-12, trace-5)", "rules.md", "R replicas", "F64", "`G1`"])
def test_what_is_no_citation_is_let_alone(text: str) -> None:
    assert not list(offenders(text, set(defined())))
