"""The checks of the documentation's builder after mkdocs, and its generated page."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.site.build import commands_page, lacking


def site(folder: Path, page: str, style: str = "") -> Path:
    (folder / "index.html").write_text(page)
    (folder / "other.html").write_text('<h1 id="there">Other</h1>')
    (folder / "style.css").write_text(style)
    return folder


@pytest.mark.parametrize(
    "page",
    [
        '<a href="other.html#there">x</a><img src="style.css">',
        '<link href="/style.css" rel="stylesheet">',
        '<a href="https://example.org/">a reader may follow it</a>',
        '<p id="here"></p><a href="#here">x</a>',
    ],
)
def test_pages_of_their_own_files_lack_nothing(page: str, tmp_path: Path) -> None:
    assert lacking(site(tmp_path, page)) == []


@pytest.mark.parametrize(
    ("page", "reported"),
    [
        ('<a href="gone.html">x</a>', "names gone.html, which is not there"),
        ('<a href="other.html#gone">x</a>', "names other.html#gone: no such anchor"),
        ('<script src="https://example.org/x.js"></script>', "fetches https://example.org/x.js"),
        ('<link href="//example.org/x.css">', "fetches //example.org/x.css"),
        ('<img src="gone.png">', "names gone.png, which is not there"),
    ],
)
def test_what_a_page_lacks_is_named(page: str, reported: str, tmp_path: Path) -> None:
    assert lacking(site(tmp_path, page)) == [f"index.html {reported}"]


def test_a_style_that_fetches_from_another_host_is_named(tmp_path: Path) -> None:
    style = '@import "https://example.org/a.css"; a { background: url(https://example.org/b.png) }'

    assert lacking(site(tmp_path, "", style)) == [
        "style.css fetches https://example.org/a.css",
        "style.css fetches https://example.org/b.png",
    ]


def test_the_page_of_commands_has_each_command_and_its_options() -> None:
    page = commands_page()

    assert "## slackwater query show" in page
    assert "## slackwater plan" in page
    assert "--rate" in page
