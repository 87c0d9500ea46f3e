"""``slackwater rehearse`` on four rooms: a room falls silent, and later a root is killed.

One rehearsal serves all tests here, since its start takes longer than its replay; each test checks
another aspect. Queries: tumbling windows of all rooms, also with a condition on rows; sliding ones
of some of them, with a filter and a computed field; and one that reads the results of the first.
"""

from __future__ import annotations

import pytest
from tests.integration.rehearsing import ROOMS, ROOMS_YAML, Ran, at, rehearse

# In `make test` the demo, the README and test_drills.py rehearse a silence and the death of a root,
# and test_history.py has a chain; what a chain passes on is tested by scenarios and the simulator.
pytestmark = [pytest.mark.slow, pytest.mark.drill]

QUERIES = """\
queries:
  climate:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: [count, sum, avg, min, max, range, var, stddev]
    bound: 3s
    margin: 150ms
    replicas: 1
  warm:
    from: [room-1, room-2, room-3, room-4]
    window: {size: 1m}
    aggregate: {temperature: [count, avg]}
    having: temperature_count >= 2 AND temperature_avg > 20.5
    bound: 3s
    margin: 150ms
    replicas: 1
  felt:
    from: [room-2, room-3]
    where: temperature > 20.5 and humidity is not null
    select: {felt: temperature * 1.8 + 32 - humidity / 10, t: temperature}
    window: {size: 2m, slide: 30s}
    aggregate: [count, avg, min, max]
    bound: 3s
    replicas: 1
  hours:
    from: [climate, room-3]
    where: temperature_count > 0 or temperature > 18
    select: {mean: temperature_avg, spread: humidity_stddev, here: temperature}
    window: {size: 3m, slide: 1m}
    aggregate: {spread: [max], here: [count, min], mean: [avg]}
    bound: 3s
    margin: 150ms
    replicas: 1
"""
FAULTS = at("4s silence room-2 for 9s", "16s kill root/climate")


@pytest.fixture(scope="module", name="ran")
def _ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("rehearsal")
    options = ("--speed", "60", "--duration", "20s", *FAULTS)
    return rehearse(folder, ROOMS_YAML + QUERIES, ROOMS, *options)


def test_all_answers_are_exact_in_the_end(ran: Ran) -> None:
    ran.agreed()
    assert ran.lines[0]["kind"] == "start"
    assert {query for query in ran.report["queries"] if ran.of(query, "stable")} == {
        "climate",
        "warm",
        "felt",
        "hours",
    }
    both = ("root/climate.0.a", "root/climate.0.b")
    assert {(copy, event) for copy in both for event in ("killed", "ready")} <= ran.events()


@pytest.mark.parametrize("query", ["climate", "felt"])
def test_a_silence_of_three_bounds_turns_tentative_and_is_corrected(ran: Ran, query: str) -> None:
    """On an overloaded machine other windows may be answered tentatively too.

    Those of the silence must be, and must name the silent room.
    """
    assert ran.report["queries"][query]["n_tentative"] >= 3
    silenced, latest = (
        next(event["wall"] for event in ran.report["events"] if event["event"] == what)
        for what in ("silenced", "heard")
    )
    in_silence = [
        line
        for line in ran.of(query, "boundary")
        if line["label"] == "tentative" and silenced < line["due_at"] < line["seen_at"] < latest
    ]
    assert len(in_silence) >= 3
    assert all("room-2" in line["missing"] for line in in_silence)
    assert {"stable", "tentative", "boundary", "undo", "rec_done"} <= ran.kinds(query)


def test_a_condition_on_figures_drops_rows(ran: Ran) -> None:
    rows = ran.of("warm", "stable")
    assert 0 < len(rows) < len(ran.of("climate", "stable"))
    assert all(row["fields"]["temperature"]["avg"] > 20.5 for row in rows)


def test_a_chain_passes_on_what_is_missing_and_corrects_itself(ran: Ran) -> None:
    """A source is silent, then the query that is read loses its root.

    See trace-20; DPC, section 6.3.
    """
    named = {
        query: {name for line in ran.of(query, "boundary") for name in line["missing"]}
        for query in ("climate", "hours")
    }
    assert "room-2" in named["climate"]
    assert "room-2" in named["hours"], "by its own name, through the query that lacked it"
    assert {"stable", "tentative", "boundary", "undo", "rec_done"} <= ran.kinds("hours")
