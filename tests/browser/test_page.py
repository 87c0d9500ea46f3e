"""The page on recorded streams: its states, keys and texts, in both themes and two widths."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway_site import (
    BEGIN,
    WINDOW,
    Recorded,
    S,
    Site,
    query_status,
    stream_status,
)

from slackwater.codec.results import format_time

ROOMS = ("room-1", "room-2", "room-3", "room-4")
EVIL = ("<img src=x onerror=alert(1)>", "\u202eright-to-left", "k" * 65_536)
QUERY = "#view=query&query=climate"
WAIT_MS = 10_000


def values(number: int, without: str = "") -> dict[str, float | None]:
    return {room: 20.0 + i / 4 + number / 50 for i, room in enumerate(ROOMS) if room != without}


def story() -> Recorded:
    """Room 2 is cut off in window 14 and comes back; room 3 is missing at the end."""
    made = Recorded()
    for number in range(14):
        made.window(number, values(number))
    for number in range(14, 18):
        made.window(number, values(number, "room-2"), "tentative", 1, ("room-2",), 1_900)
    made.undo(14, 17)
    for number in range(14, 18):
        made.window(number, values(number), epoch=1, late_ms=9_000)
    made.window(18, values(18), late_ms=2_600)
    made.window(19, values(19, "room-3"), "tentative", 2, ("room-3",), 1_900)
    return made


def now(**more: object) -> dict[str, Any]:
    at = format_time(BEGIN + 215 * S)
    query = query_status(
        state="tentative",
        sentence="tentative since 12:29:50, without room-3",
        missing=["room-3"],
        streams=list(ROOMS),
    )
    streams = [stream_status(room) for room in ROOMS]
    streams[2] |= {"lane": "missing", "missing": True, "quarantined": {"late": 3}}
    return {"at": at, "event_at": at, "queries": [query], "streams": streams, **more}


def cell(page: Any, row: int, column: int) -> Any:
    return page.locator(f".strip tbody tr:nth-child({row}) td:nth-child({column + 2})")


@pytest.fixture
def shown_site(site: Site) -> Site:
    site.publish(story())
    site.set_status(**now())
    return site


def test_a_query_is_one_sentence(page: Any, shown_site: Site) -> None:
    page.goto(shown_site.url)
    card = page.locator(".query")
    card.wait_for()
    assert "tentative since 12:29:50, without room-3" in card.inner_text()
    assert "1 of 1 queries not exact" in page.locator("#verdict").inner_text()
    card.click()
    page.locator(".strip").wait_for()
    assert page.url.endswith(QUERY)


def test_the_strip_tells_states_by_pattern_and_in_words(page: Any, shown_site: Site) -> None:
    page.goto(shown_site.url + QUERY)
    page.locator(".strip td").first.wait_for()
    labels = [cell(page, 2, column).get_attribute("aria-label") for column in (0, 14, 18, 19)]
    assert [label.split(", ", 2)[2] for label in labels if label] == [
        "20.25, exact",
        "20.53, exact, corrected",
        "20.61, exact, later than the bound",
        "20.63, tentative, without room-3",
    ]
    patterns = {
        page.evaluate(
            "([c]) => { const s = getComputedStyle(document.querySelector('.strip .' + c));"
            " return s.backgroundImage.split('(')[0] + s.borderTopStyle }",
            [state],
        )
        for state in ("exact", "corrected", "tentative", "due")
    }
    assert len(patterns) == 4, "each state has a pattern or border of its own"


COLOURED = """(name) => {
  const [r, g, b] = getComputedStyle(document.documentElement).getPropertyValue(name).trim()
    .match(/[0-9a-f]{2}/gi).map((each) => parseInt(each, 16));
  const of = document.querySelector(".chart canvas");
  const { data } = of.getContext("2d").getImageData(0, 0, of.width, of.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4)
    count += data[i] === r && data[i + 1] === g && data[i + 2] === b;
  return count;
}"""


def test_the_lines_of_keys_are_drawn(page: Any, shown_site: Site) -> None:
    """Also at first, when no change follows the snapshot."""
    page.goto(shown_site.url + QUERY)
    page.locator(".chart canvas").first.wait_for()
    for name in ("--line-1", "--line-4"):
        page.wait_for_function(f"({COLOURED})('{name}') > 500")


def test_an_undo_strikes_cells_before_they_turn_exact(page: Any, site: Site) -> None:
    made = Recorded()
    made.window(0, values(0, "room-2"), "tentative", 1, ("room-2",))
    site.publish(made)
    page.goto(site.url + QUERY)
    page.locator(".strip .cell.tentative").first.wait_for()
    made.undo(0, 0)
    site.publish(made)
    page.locator(".strip .cell.withdrawn").first.wait_for()
    made.window(0, values(0), epoch=1)
    site.publish(made)
    page.locator(".strip .cell.corrected").first.wait_for()
    assert page.locator(".strip .cell.withdrawn").count() == 0


def test_enter_on_a_cell_explains_it(page: Any, shown_site: Site) -> None:
    page.goto(shown_site.url + QUERY)
    page.locator(".strip td").first.wait_for()
    cell(page, 1, 15).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    panel = page.locator(".panel")
    panel.wait_for()
    text = panel.inner_text()
    assert "room-1, 12:29:00 to 12:29:10" in text or re.search(r"room-1, \d\d:\d\d:\d\d to", text)
    for expected in ("tentative without room-2", "1.9 s after it was due", "withdrawn", "exact"):
        assert expected in text
    assert "The tentative answer was right." in text
    assert f"window={(BEGIN + 14 * WINDOW) // 1_000}" in page.url
    page.keyboard.press("Escape")
    panel.wait_for(state="hidden")
    assert "key=" not in page.url
    assert page.evaluate("document.activeElement.tagName") == "TD"


def test_how_wrong_the_early_answers_were(page: Any, site: Site) -> None:
    made = Recorded()
    made.window(0, {"room-1": 20.0, "room-2": 20.0, "room-3": 1.0}, "tentative", 1, ("room-4",))
    site.publish(made)
    page.goto(site.url + QUERY)
    errors = page.locator(".errors")
    errors.get_by_text("No tentative answer of the windows kept here is exact yet").wait_for()
    made.undo(0, 0)
    made.window(0, {"room-1": 20.5, "room-2": 20.0}, epoch=1)
    site.publish(made)
    errors.get_by_text("exact now").wait_for()
    assert errors.inner_text() == (
        "3 tentative values of temperature.avg are exact now: 1 right, off by 0.25 on average and"
        " by 0.50 at most; 1 without an exact row."
    )
    page.get_by_label("figure").select_option("temperature.count")
    errors.get_by_text("temperature.count").wait_for()
    assert "2 right, off by 0 on average" in errors.inner_text()


def test_the_url_is_the_state(page: Any, shown_site: Site) -> None:
    start = (BEGIN + 14 * WINDOW) // 1_000
    page.goto(
        f"{shown_site.url}{QUERY}&figure=temperature.count&key=room-2&window={start}&filter=room-2"
    )
    page.locator(".panel").wait_for()
    assert page.locator("#figure").input_value() == "temperature.count"
    assert page.locator(".strip tr.key").count() == 1


def test_all_by_keyboard(page: Any, shown_site: Site) -> None:
    page.goto(shown_site.url)
    page.locator(".query").wait_for()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.className").startswith("query"):
            break
    page.keyboard.press("Enter")
    page.locator(".strip td").first.wait_for()
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TD":
            break
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    row = "document.activeElement.parentNode.sectionRowIndex"
    at = page.evaluate(f"[{row}, document.activeElement.cellIndex]")
    assert at == [1, 1], "the first column has the names"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.evaluate(row) == 0


def test_a_change_of_state_is_spoken_once(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.locator(".query").wait_for()
    assert page.locator("#spoken").inner_text() == ""
    site.set_status(**now())
    page.wait_for_function("() => document.getElementById('spoken').textContent !== ''")
    assert page.locator("#spoken").text_content() == (
        "climate: tentative since 12:29:50, without room-3"
    )


def test_keys_are_text(page: Any, site: Site) -> None:
    made = Recorded()
    made.window(0, dict.fromkeys(EVIL, 1.0))
    site.publish(made)
    site.set_status(streams=[stream_status(EVIL[0])], queries=[query_status(streams=[EVIL[0]])])
    page.goto(site.url + QUERY)
    page.locator(".strip td").first.wait_for()
    names = page.locator(".strip tbody th").all_inner_texts()
    assert names[0] == "<img src=x onerror=aler…"
    assert page.locator("main img").count() == 0
    for row in (1, 2, 3):
        cell(page, row, 0).click()
        page.locator(".panel").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.goto(site.url + "#view=streams")
    page.locator(".stream").wait_for()
    assert page.locator("main img").count() == 0
    page.goto(f"{site.url}#view=query&query={EVIL[0]}")
    page.get_by_text("There is no such query").wait_for()


def test_quarantine_by_reason(page: Any, shown_site: Site) -> None:
    shown_site.refused["room-3"] = [
        {
            "reason": "late",
            "count": 3,
            "advice": "`disorder: 2s` would have taken it",
            "example": {"payload": EVIL[0]},
        }
    ]
    page.goto(shown_site.url + "#view=streams")
    page.get_by_role("button", name="What is in quarantine").click()
    page.get_by_text("late: 3").wait_for()
    assert EVIL[0] in page.locator("pre").inner_text()


@pytest.mark.parametrize(
    ("expected", "given"),
    [
        ("No query yet", {"queries": []}),
        ("starting", {"queries": [query_status(state="starting", sentence="starting")]}),
        ("paused", {"queries": [query_status(state="paused", sentence="paused")]}),
        ("Kafka does not answer", {"kafka": False, "well": False}),
        ("query climate is LATE", {"well": False, "problems": ["query climate is LATE"]}),
    ],
)
def test_designed_states(page: Any, site: Site, expected: str, given: dict[str, Any]) -> None:
    site.set_status(**given)
    page.goto(site.url)
    page.get_by_text(expected).first.wait_for()


def test_while_kafka_is_away_the_values_stay_with_their_time(page: Any, shown_site: Site) -> None:
    page.goto(shown_site.url + QUERY)
    page.locator(".strip .cell.corrected").first.wait_for()
    shown_site.set_status(**now() | {"at": format_time(BEGIN + 240 * S), "kafka": False})
    page.get_by_text(f"Values stay as of {now()['at'][11:19]} UTC").wait_for()
    assert page.locator(".strip .cell.corrected").count() > 10


def test_a_query_that_is_starting_changed_paused_and_deleted(page: Any, site: Site) -> None:
    site.set_status(queries=[query_status(state="starting", sentence="starting")])
    page.goto(site.url + QUERY)
    page.get_by_text("Its first answer comes at most X").wait_for()
    site.publish(story())
    site.set_status(queries=[query_status(generation=1)])
    page.get_by_text("this is definition 2").wait_for()
    site.set_status(queries=[query_status(state="paused", sentence="paused")])
    page.get_by_text("This query is paused").wait_for()
    site.call(lambda: site.hub.end("climate"))
    site.set_status(queries=[])
    page.get_by_text("This query was deleted").wait_for()
    assert page.locator(".strip td").count() > 20, "its last values stay"


def test_the_gateway_goes_and_comes_back_and_nothing_is_missed(page: Any) -> None:
    made = story()
    with Site() as first:
        first.publish(made)
        first.set_status(**now())
        page.goto(first.url + QUERY)
        page.locator(".strip .cell.corrected").first.wait_for()
    page.get_by_text("The gateway is away").wait_for()
    assert page.locator(".strip .cell.corrected").count() > 10, "values stay"
    with Site(port=first.port) as second:
        complete = story()
        complete.undo(19, 19, 2)
        complete.window(19, values(19), epoch=2)
        complete.window(20, values(20))
        second.publish(complete)
        second.set_status(**now())
        page.get_by_text("The gateway is away").wait_for(state="hidden", timeout=WAIT_MS)
        page.wait_for_function("() => document.querySelectorAll('.cell.tentative').length <= 1")
        label = cell(page, 3, 19).get_attribute("aria-label")
        assert label.endswith("20.88, exact, corrected")


def test_a_token_opens_the_page(page: Any, tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("view some-token-0123456789\n")
    file.chmod(0o600)
    with Site(file) as guarded:
        page.goto(guarded.url + QUERY)
        page.get_by_label("Token").fill("wrong-token-0123456789")
        page.keyboard.press("Enter")
        page.get_by_text("this token is not valid").wait_for()
        page.get_by_label("Token").fill("some-token-0123456789")
        page.keyboard.press("Enter")
        page.get_by_text("climate", exact=True).first.wait_for()
        assert page.evaluate("document.cookie") == ""


def test_a_hidden_page_closes_its_stream(page: Any, site: Site) -> None:
    page.goto(site.url)
    page.locator(".query").wait_for()
    hide = "Object.defineProperty(document, 'hidden', {get: () => %s, configurable: true});"
    event = "document.dispatchEvent(new Event('visibilitychange'))"
    page.evaluate(hide % "true" + event)
    for _ in range(100):
        page.wait_for_timeout(50)
        if not site.hub.readers:
            break
    assert site.hub.readers == 0
    page.evaluate(hide % "false" + event)
    for _ in range(100):
        page.wait_for_timeout(50)
        if site.hub.readers:
            break
    assert site.hub.readers == 1


def test_arrow_down_makes_the_rows_that_it_needs(page: Any, site: Site) -> None:
    made = Recorded()
    made.window(0, {f"sensor-{n:02}": float(n) for n in range(40)})
    site.publish(made)
    page.goto(site.url + QUERY)
    page.locator('.strip tbody td[tabindex="0"]').focus()
    for number in range(1, 40):
        page.keyboard.press("ArrowDown")
        focused = "document.activeElement.parentNode.firstChild.textContent"
        page.wait_for_function(f"() => {focused} === 'sensor-{number:02}'")


def test_of_a_thousand_keys_forty_are_shown_and_their_cells_stay(page: Any, site: Site) -> None:
    made = Recorded()
    keys = [f"sensor-{n:04}" for n in range(1_000)]
    for number in range(80):
        made.window(number, dict.fromkeys(keys, float(number)))
    site.publish(made)
    page.goto(site.url + QUERY)
    cell_text = "document.querySelector('.strip tbody tr')?.lastElementChild.textContent"
    page.wait_for_function(f"() => {cell_text} === '79'")
    page.evaluate("window.kept = document.querySelector('.strip tbody tr').lastElementChild")
    for number in range(80, 84):
        made.window(number, dict.fromkeys(keys, float(number)))
        site.publish(made)
    page.wait_for_function(f"() => {cell_text} === '83'")
    assert page.evaluate("kept.isConnected && kept.textContent") == "79"
    rows = page.locator(".strip tr.key")
    assert 8 <= rows.count() < 40, "those that are on the screen"
    while (had := rows.count()) < 40:
        rows.last.scroll_into_view_if_needed()
        page.wait_for_function(f"() => document.querySelectorAll('.strip tr.key').length > {had}")
    assert rows.count() == 40
    assert "960 more keys" in page.locator("main").inner_text()


SIZES = list(itertools.product(("light", "dark"), (390, 1_280)))


def check_accessible(page: Any, of: str) -> None:
    """Check with axe, and that nothing scrolls sideways."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == [], of
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), of


@pytest.fixture
def sized(chromium: Any, theme: Any, width: int) -> Iterator[Any]:
    """A page in a theme, of a width."""
    size = {"width": width, "height": 800}
    context = chromium.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce")
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_no_violation_of_accessibility_and_no_sideways_scrolling(
    sized: Any, shown_site: Site
) -> None:
    start = (BEGIN + 14 * WINDOW) // 1_000
    for view, awaited in (
        ("", ".query"),
        (f"{QUERY}&key=room-2&window={start}", ".panel"),
        ("#view=streams", ".stream"),
        ("#view=machines", "table"),
        ("#view=query&query=none", ".empty"),
    ):
        sized.goto(shown_site.url + view)
        sized.reload()
        sized.locator(awaited).first.wait_for()
        check_accessible(sized, view)


@pytest.mark.parametrize(("theme", "width"), SIZES)
def test_no_violation_in_a_designed_state(sized: Any, tmp_path: Path) -> None:
    """Nothing there, starting, changed, paused, late, Kafka away, gateway away, deleted, token."""
    starting = query_status(state="starting", sentence="starting")
    file = tmp_path / "tokens"
    file.write_text("view some-token-0123456789\n")
    file.chmod(0o600)
    with Site(file) as guarded:
        sized.goto(guarded.url)
        sized.get_by_label("Token").fill("wrong-token-0123456789")
        sized.keyboard.press("Enter")
        sized.get_by_text("this token is not valid").wait_for()
        check_accessible(sized, "a wrong token")
    with Site() as site:
        for view, awaited, given in (
            ("", "No query yet", {"queries": []}),
            (QUERY, "Its first answer comes at most X", {"queries": [starting]}),
            ("#view=streams", "No stream yet", {"streams": []}),
            ("", "query climate is LATE", {"well": False, "problems": ["query climate is LATE"]}),
        ):
            site.set_status(**given)
            sized.goto(site.url + view)
            sized.reload()
            sized.get_by_text(awaited).first.wait_for()
            check_accessible(sized, awaited)
        site.publish(story())
        sized.goto(site.url + QUERY)
        changes: tuple[tuple[str, dict[str, Any]], ...] = (
            ("this is definition 2", {"queries": [query_status(generation=1)]}),
            ("This query is paused", {"queries": [query_status(state="paused", sentence="")]}),
            ("Kafka does not answer", {"kafka": False, "well": False}),
        )
        for awaited, change in changes:
            site.set_status(**change)
            sized.get_by_text(awaited).first.wait_for()
            check_accessible(sized, awaited)
        site.call(lambda: site.hub.end("climate"))
        site.set_status(queries=[])
        sized.get_by_text("This query was deleted").wait_for()
        check_accessible(sized, "deleted")
        sized.goto(site.url)
        sized.get_by_text("No query yet").wait_for()
    sized.get_by_text("The gateway is away").wait_for()
    check_accessible(sized, "the gateway is away")
