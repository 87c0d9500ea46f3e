"""`make docs`: the pages of the repository as a site, which needs no network to be read.

Pages stay where they are read on a code host (README.md, docs/, schemas/README.md, ...). This
copies them, and what they link to, into build/docs/pages in the same layout, adds the command
line's own help to the page of commands, and runs mkdocs in strict mode, which refuses a link or an
anchor that does not exist. Afterwards the built HTML is read once more: every page, style, script
and picture that it names must be one of its own files.

    .venv/bin/python docs/site/build.py MKDOCS
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from typer.main import get_command

from slackwater.cli.app import app

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build" / "docs"
PAGES, SITE = BUILT / "pages", BUILT / "site"
SOURCES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "schemas/README.md",
    "tests/README.md",
    "tests/simulator/README.md",
    "locks/README.md",
    "bench/README.md",
    "bench/peers/README.md",
)
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
ASKED_FOR = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src"}
"""What a browser fetches by itself, by tag; a reader follows `a` only when they want to."""


def stage() -> None:
    """Copy the pages and the files that they link to."""
    shutil.rmtree(BUILT / "pages", ignore_errors=True)
    pages = sorted(path for pattern in SOURCES for path in ROOT.glob(pattern))
    linked = {
        target
        for page in pages
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if (target := (page.parent / link).resolve()).is_file() and target.is_relative_to(ROOT)
    }
    for path in {*pages, *linked}:
        copy = PAGES / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    commands = PAGES / "docs" / "reference" / "commands.md"
    with commands.open("a", encoding="utf-8") as page:
        page.write("\n" + commands_page())


def commands_page() -> str:
    """What ``--help`` prints for each command, for the end of the page of commands."""
    tree: Any = get_command(app)
    lines: list[str] = []
    for name, command in sorted(tree.commands.items()):
        for sub, leaf in sorted(getattr(command, "commands", {"": command}).items()):
            full = f"slackwater {name} {sub}".strip()
            with leaf.make_context(full, [], resilient_parsing=True) as context:
                lines += [f"## {full}", "", "```text", leaf.get_help(context).strip(), "```", ""]
    return "\n".join(lines)


class Names(HTMLParser):
    """Addresses that a page names: those that a browser asks for, those of links, and anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        named = found.get(ASKED_FOR.get(tag, ""))
        if named and found.get("rel") != "canonical":
            self.fetched.append(named)
        if tag == "a" and "href" in found:
            self.links.append(found["href"])


def read(page: Path) -> Names:
    names = Names()
    names.feed(page.read_text(encoding="utf-8"))
    return names


def lacking(site: Path) -> list[str]:
    """What a reader without a network would miss, and links that lead nowhere."""
    pages = {page.resolve(): read(page) for page in site.rglob("*.html")}
    found = []
    for page, names in pages.items():
        place = page.relative_to(site.resolve())
        for address in names.fetched + names.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                if address in names.fetched and parts.scheme != "data":
                    found.append(f"{place} fetches {address}")
                continue
            base = site if parts.path.startswith("/") else page.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else page
            if not target.exists():
                found.append(f"{place} names {address}, which is not there")
            elif parts.fragment and target in pages:
                anchor = unquote(parts.fragment)
                if not anchor.startswith("__") and anchor not in pages[target].anchors:
                    found.append(f"{place} names {address}: no such anchor")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        found += [
            f"{style.relative_to(site)} fetches {address}"
            for address in re.findall(r"(?:url\(|@import\s+)[\"']?(https?:[^\"')]+)", text)
        ]
    return found


def main(mkdocs: str) -> int:
    stage()
    subprocess.run(
        [mkdocs, "build", "--quiet", "--clean", "--config-file", ROOT / "docs/site/mkdocs.yml"],
        check=True,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )
    found = lacking(SITE)
    for line in found:
        print(f"docs: {line}", file=sys.stderr)
    if found:
        return 1
    pages = len(list(SITE.rglob("*.html")))
    print(
        f"docs: {pages} pages, all links lead somewhere: {(SITE / 'index.html').relative_to(ROOT)}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
