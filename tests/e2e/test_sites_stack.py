"""The stack of sites.yaml: a sensor is silent; a link is cut, and its site killed meanwhile.

The link of north carries 256 kbit/s in each direction.

Nothing of slackwater judges it: the centre's answers are compared with the messages that the
sensors of both sites wrote to the Kafkas of the sites.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.conftest import IMAGES, Compose, project
from tests.e2e.judging import (
    SIZE_US,
    Listener,
    counted,
    expected,
    judge,
    latencies_s,
    messages,
    microseconds,
    now_us,
)
from tests.e2e.links import LinkEnd, require_shaping
from tests.e2e.machine import Machine
from tests.support.engine import docker, require
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.drill, pytest.mark.timeout(1800)]

X_S = {"climate": 4.0, "rooms-north": 2.0}
ALLOWED_S = 1.0
CUT_WINDOWS = 10
KBIT_PER_S = 256
LINK_BYTES_PER_S_MAX = 8_000
"""In both directions, with all protocols."""
AT_NORTH, AT_SOUTH = ("room-1", "room-2"), ("room-3", "room-4")
ROOMS = (*AT_NORTH, *AT_SOUTH)


class Sites(Compose):
    """The stack, with the addresses of the sites' Kafkas."""

    north, south = "", ""

    @property
    def link(self) -> str:
        """The network between north and the centre."""
        return f"{self.project}_link-north"

    def thin_link(self) -> tuple[LinkEnd, LinkEnd]:
        """Make the link thin, and return its ends."""
        ends = [LinkEnd(self.container(of), self.link) for of in ("north", "kafka-centre")]
        for end in ends:
            end.make_thin(KBIT_PER_S)
        return ends[0], ends[1]


@pytest.fixture(name="stack")
def _stack() -> Iterator[Sites]:
    require(IMAGES, compose=True)
    require_shaping()
    ports = {f"SLACKWATER_KAFKA_PORT_{site}": str(free_port()) for site in ("NORTH", "SOUTH")}
    for compose in project("sites", "sites.yaml", of=Sites, **ports):
        assert isinstance(compose, Sites)
        compose.north, compose.south = (f"127.0.0.1:{port}" for port in ports.values())
        yield compose


def sent(bootstrap: str, room: str) -> list[tuple[int, str, float]]:
    """Return the readings of a room, of which none is refused: time in us, key, temperature."""
    assert messages(bootstrap, f"sw.quarantine.{room}") == [], "its sensor sends in order"
    return [
        (each["ts"] * 1_000, room, each["temperature"])
        for each in messages(bootstrap, f"{room}-readings")
        if each["temperature"] is not None
    ]


def lacking(records: list[dict[str, Any]], since_us: int) -> list[set[str]]:
    """Return what the tentative first answers lack that are due since then."""
    return [
        set(record["missing"])
        for record in list(records)
        if record["kind"] == "boundary"
        and record["label"] == "tentative"
        and microseconds(record["due_at"]) >= since_us
    ]


def test_a_sensor_is_silent_a_site_is_cut_off_and_restarts_and_all_is_exact(stack: Sites) -> None:
    stack.up()
    link = stack.thin_link()
    machine = Machine().start()
    centre = Listener(stack.bootstrap).start()
    own = Listener(stack.north, "rooms-north").start()
    rows = Listener(stack.north).start()
    centre.wait(
        lambda records: {*ROOMS} <= {record.get("key") for record in records[-500:]},
        "answers have all rooms",
    )
    steady_from = now_us() + 2_000_000
    for each in (centre, own, rows):
        each.wait_for_stable(steady_from + 3_000_000)

    began, sent_before = time.monotonic(), sum(end.sent_bytes() for end in link)
    centre.wait_for_stable(now_us() + 10_000_000)
    per_s = (sum(end.sent_bytes() for end in link) - sent_before) / (time.monotonic() - began)
    assert per_s <= LINK_BYTES_PER_S_MAX

    # A sensor of north is silent: the centre lacks its child alone.
    silent_at = now_us()
    docker("pause", stack.container("room-1"))
    centre.wait(
        lambda records: len(lacking(records, silent_at)) >= CUT_WINDOWS, "answers without room-1"
    )
    assert {*map(frozenset, lacking(centre.records, silent_at))} == {frozenset({"room-1"})}
    docker("unpause", stack.container("room-1"))
    for each in (centre, own, rows):
        each.wait_for_stable(now_us() + 2_000_000)

    north = stack.container("north")
    docker("network", "disconnect", stack.link, north)
    cut_at = now_us() + 2_000_000  # what is on its way arrives
    centre.wait(
        lambda records: len(lacking(records, cut_at)) >= CUT_WINDOWS, "answers without the site"
    )
    assert {*map(frozenset, lacking(centre.records, cut_at))} == {frozenset(AT_NORTH)}
    for each in (own, rows):  # the site has exact answers of its own meanwhile
        each.wait_for_stable(now_us() + 2_000_000)
    own_bounded_to = now_us()

    docker("kill", north)  # all of its machines, and it knows its queries without the centre
    docker("start", north)
    for each in (own, rows):
        each.wait_for_stable(now_us() + 2_000_000)
    assert lacking(centre.records, cut_at)[-1] == {*AT_NORTH}, "the centre still lacks it"

    docker("network", "connect", stack.link, north)
    LinkEnd(north, stack.link).make_thin(KBIT_PER_S)
    for each in (centre, own, rows):
        each.wait_for_stable(now_us() + 3_000_000)
    bounded_to = now_us()
    for each in (centre, rows):
        each.wait_for_stable(bounded_to)
    machine.stop()
    stack.run("stop", "room-1", "room-2", "room-3", "room-4")  # they send what they have made

    readings = {room: sent(stack.north, room) for room in AT_NORTH}
    readings |= {room: sent(stack.south, room) for room in AT_SOUTH}
    found = {"centre": centre.stop(), "north": rows.stop()}
    own_records = own.stop()
    assert judge(found["centre"])[1] >= CUT_WINDOWS
    judge(found["north"])
    judge(own_records)
    for place, rooms in (("centre", ROOMS), ("north", AT_NORTH)):
        exact = counted(found[place], rooms)
        first, last = steady_from // 1_000_000 * 1_000_000, bounded_to - SIZE_US
        of_rooms = [reading for room in rooms for reading in readings[room]]
        wanted = expected(of_rooms, first, last)
        assert len(wanted) > 30 * len(rooms)
        for window, figures in wanted.items():
            assert exact[window] == pytest.approx(figures, rel=1e-12), (place, window)

    for name, records, until in (
        ("climate", found["centre"], bounded_to),
        ("rooms-north", own_records, own_bounded_to),
    ):
        machine.check_in_time(latencies_s(records), X_S[name] + ALLOWED_S, steady_from, until)
