"""A browser for the tests of this folder: `make browser`. They need Chromium and Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway_site import Site

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or pytest.fail("no chromium: apt-get install chromium")
    options = ["--font-render-hinting=none", *(["--no-sandbox"] if os.getuid() == 0 else [])]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as started:
        yield started


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page that fails its test if a script fails or the policy refuses something."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB")
    made = context.new_page()
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    made.on("console", lambda logged: errors.append(logged.text) if _is_failure(logged) else None)
    made.on("dialog", lambda dialog: errors.append(f"dialog: {dialog.message}"))
    yield made
    context.close()
    assert not errors


def _is_failure(logged: Any) -> bool:
    return logged.type == "error" and "Failed to load resource" not in logged.text
