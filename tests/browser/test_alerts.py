"""Alerts on the page, on recorded states: marks, sentences, links, what is announced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.browser.test_page import EVIL, WAIT_MS, now, story
from tests.support.gateway_site import BEGIN, WINDOW, Site, status

from slackwater.delivery.records import AlertRecord, AlertState, Firing
from slackwater.model.alerts import AlertSpec

ALERTS = "#view=alerts"
RULES = {
    ("climate", "hot"): AlertSpec("hot", "temperature_avg > 26", 2, "act"),
    ("climate", "mute"): AlertSpec("mute", stream="room-3", missing_us=30_000_000),
}


def alert(
    state: AlertState,
    key: str = "room-1",
    window: int = 14,
    *,
    tentative: bool = False,
    rule: str = "hot",
    **more: Any,
) -> AlertRecord:
    start = BEGIN + window * WINDOW
    missing = ("room-2",) if tentative else ()
    values = {} if rule == "mute" else {"temperature_avg": 27.5}
    began = Firing(
        f"{rule}-{key}-{window}-{tentative}",
        start,
        start + WINDOW,
        values,
        missing,
        None,
        tentative,
    )
    return AlertRecord(rule, "climate", key, state, began, start + WINDOW, 0, 0, **more)


def all_kinds() -> list[AlertRecord]:
    seems_hot = alert("firing", "room-4", 15, tentative=True)
    was_hot = alert("firing", "room-2", 10)
    began = alert("firing", "room-2", 15, tentative=True)
    return [
        was_hot,
        replace(was_hot, state="ended", changed_to=BEGIN + 13 * WINDOW),
        seems_hot,
        replace(seems_hot, state="withdrawn", exact={"temperature_avg": 24.25}),
        began,
        replace(began, state="confirmed", exact={"temperature_avg": 27.0}),
        alert("firing"),
        alert("firing", "room-3", 16, tentative=True),
        alert("firing", "", 17, rule="mute"),
        alert("pending", "room-4", 17),
    ]


@pytest.fixture
def alerting(site: Site) -> Site:
    site.publish(story())
    site.set_status(**now())
    site.rules = dict(RULES)
    site.set_alerts(*all_kinds())
    return site


def card(page: Any, kind: str) -> Any:
    return page.locator(f".alert.is-{kind}")


def spoken(page: Any, text: str) -> None:
    page.wait_for_function(
        "text => document.getElementById('spoken').textContent.includes(text)", arg=text
    )


def test_each_alert_has_its_state_and_its_sentence(page: Any, alerting: Site) -> None:
    page.goto(alerting.url + ALERTS)
    page.get_by_text("3 alerts fire, 1 of them tentative").wait_for()
    sentences = {
        "firing": "fires since 2026-11-26 12:29:10: temperature_avg 27.5",
        "tentative": "fires since 2026-11-26 12:29:30, tentative without room-2",
        "pending": "pending at 2026-11-26 12:29:40: temperature_avg 27.5",
        "ended": "ended: fired from 2026-11-26 12:28:30 to 2026-11-26 12:28:50",
        "withdrawn": (
            "withdrawn: temperature_avg 27.5 tentatively without room-2,"
            " temperature_avg 24.25 exactly"
        ),
        "confirmed": "confirmed: temperature_avg 27.5 tentatively without room-2",
    }
    for kind, sentence in sentences.items():
        assert sentence in " ".join(card(page, kind).all_inner_texts()), kind
    assert "room-3 is missing since 2026-11-26 12:29:30" in card(page, "firing").first.inner_text()
    assert page.locator("#alerts-link").inner_text() == "Alerts (3)"
    assert page.locator(".rules li").all_inner_texts() == [
        "hot of climate: temperature_avg > 26 in 2 windows in a row; tentative answers, too",
        "mute of climate: room-3 is missing for 30 s",
    ]
    marks = {
        page.evaluate(
            "k => { const s = getComputedStyle(document.querySelector('.mark-of.is-' + k));"
            " return [s.backgroundImage.split('(')[0], s.borderTopStyle, s.borderBottomWidth,"
            " s.textDecorationLine, s.backgroundColor].join() }",
            kind,
        )
        for kind in sentences
    }
    assert len(marks) == len(sentences), "each state has a mark of its own, not by colour alone"


def test_an_alert_leads_to_the_explanation_of_its_window(page: Any, alerting: Site) -> None:
    page.goto(alerting.url + ALERTS)
    page.get_by_role("link", name="why: window 12:29:00 to 12:29:10").click()
    panel = page.locator(".panel")
    panel.wait_for()
    assert "room-1, 12:29:00 to 12:29:10" in panel.inner_text()
    assert page.locator("#figure").input_value() == "temperature.avg"
    shown = page.locator("section.of-query .alert")
    assert shown.count() == 3, "the query shows its alerts"
    page.goto(alerting.url + ALERTS)
    page.get_by_role("link", name="stream room-3").click()
    page.locator(".stream").first.wait_for()


def test_what_fires_and_what_ends_is_announced(page: Any, alerting: Site) -> None:
    page.goto(alerting.url)
    page.get_by_text("Alerts (3)").wait_for()
    assert page.locator("#spoken").text_content() == "", "what stood already is not announced"
    seems_hot = alert("firing", "room-4", 18, tentative=True)
    alerting.set_alerts(seems_hot)
    spoken(page, "hot of climate, room-4: fires since 2026-11-26 12:29:50, tentative")
    alerting.set_alerts(replace(seems_hot, state="withdrawn", exact={"temperature_avg": 20.0}))
    spoken(page, "hot of climate, room-4: withdrawn: temperature_avg 27.5 tentatively")
    alerting.set_alerts(alert("pending", "room-2", 19))
    page.goto(alerting.url + ALERTS)
    page.locator(".is-pending bdi", has_text="room-2").wait_for()
    assert "pending" not in page.locator("#spoken").text_content()
    alerting.set_alerts(*(alert("firing", f"room-{n}", 20) for n in range(5, 15)))
    spoken(page, "10 alerts changed, the last ones")


def test_designed_states_of_alerts(page: Any, site: Site) -> None:
    page.goto(site.url + ALERTS)
    page.get_by_text("Reading the alerts").wait_for()
    site.set_alerts()
    page.get_by_text("No alert is declared").wait_for()
    site.rules = dict(RULES)
    site.set_alerts()
    page.get_by_text("No alert fires").wait_for()
    site.set_alerts(alert("pending"))
    page.get_by_text("No alert fires; 1 pending").wait_for()
    site.set_alerts(alert("firing"))
    page.get_by_text("1 alert fires").wait_for()
    site.set_status(kafka=False, well=False)
    page.get_by_text("Kafka does not answer").first.wait_for()
    assert card(page, "firing").count() == 1, "what is known stays"


def test_alerts_go_on_when_the_gateway_is_back(page: Any) -> None:
    with Site() as first:
        first.rules = dict(RULES)
        first.set_alerts(alert("firing", tentative=True))
        page.goto(first.url + ALERTS)
        card(page, "tentative").wait_for()
    page.get_by_text("The gateway is away").wait_for()
    assert card(page, "tentative").count() == 1, "what is known stays"
    with Site(port=first.port) as second:
        second.rules = dict(RULES)
        began = alert("firing", tentative=True)
        second.set_alerts(began, replace(began, state="withdrawn", exact={"temperature_avg": 1.0}))
        page.get_by_text("The gateway is away").wait_for(state="hidden", timeout=WAIT_MS)
        card(page, "withdrawn").wait_for()
        spoken(page, "hot of climate, room-1: withdrawn")
        assert card(page, "tentative").count() == 0


def test_names_of_alerts_are_text(page: Any, site: Site) -> None:
    site.rules = {("climate", "hot"): AlertSpec("hot", "temperature_avg > 26")}
    site.set_alerts(*(alert("firing", key) for key in EVIL))
    page.goto(site.url + ALERTS)
    card(page, "firing").first.wait_for()
    assert page.locator("main img").count() == 0
    assert EVIL[0] in page.locator("main").inner_text()
    assert page.locator("bdi").count() > 0, "right-to-left text ends with the key"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_alerts_by_keyboard_and_as_a_table(page: Any, alerting: Site) -> None:
    page.goto(alerting.url)
    page.get_by_text("Alerts (3)").wait_for()
    for _ in range(6):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "alerts-link":
            break
    page.keyboard.press("Enter")
    card(page, "firing").first.wait_for()
    why = page.get_by_role("link", name="why: window 12:29:00 to 12:29:10")
    why.focus()
    alerting.set_alerts(alert("firing", "room-2", 19))
    page.get_by_text("4 alerts fire").wait_for()
    assert page.evaluate("document.activeElement.textContent") == (
        "why: window 12:29:00 to 12:29:10"
    ), "the focus stays where it was, though a card came before it"
    page.get_by_text("Alerts as a table").press("Enter")
    rows = page.locator("#alert-table tbody tr").all_inner_texts()
    assert len(rows) == 8
    assert "withdrawn\thot\tclimate\troom-4" in "\n".join(rows)
    alerting.set_alerts(alert("firing", "room-5", 19))
    page.get_by_text("5 alerts fire").wait_for()
    assert page.locator("#alert-table tbody tr").count() == 9, "the table stays open"


def test_of_a_thousand_alerts_the_newest_are_shown(page: Any, site: Site) -> None:
    site.rules = dict(RULES)
    site.set_alerts(*(alert("firing", f"sensor-{n:04}", n) for n in range(1_000)))
    page.goto(site.url + ALERTS)
    page.get_by_text("1000 alerts fire").wait_for()
    assert card(page, "firing").count() == 200
    assert "sensor-0999" in card(page, "firing").first.inner_text()
    page.get_by_text("800 more: slackwater alerts lists all").wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1_280])
def test_no_violation_of_accessibility_by_alerts(
    chromium: Any, alerting: Site, theme: Any, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = chromium.new_context(
        viewport={"width": width, "height": 800}, color_scheme=theme, reduced_motion="reduce"
    )
    page = context.new_page()

    def check(what: str) -> None:
        found = Axe().run(page).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"][:200]) for each in found] == [], what
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), what

    page.goto(alerting.url + ALERTS)
    card(page, "withdrawn").wait_for()
    page.get_by_text("Alerts as a table").click()
    check("alerts of all kinds")
    page.goto(alerting.url + "#view=query&query=climate")
    card(page, "tentative").wait_for()
    check("the alerts of a query")
    page.goto(alerting.url + ALERTS)
    page.get_by_text("Alerts as a table").wait_for()
    alerting.set_status(**status(kafka=False, well=False))
    page.get_by_text("Kafka does not answer").first.wait_for()
    check("Kafka is away")
    alerting.alerts_view = type(alerting.alerts_view)()
    alerting.rules = {}
    alerting.set_alerts()
    page.get_by_text("No alert is declared").wait_for()
    check("no alert")
    context.close()
