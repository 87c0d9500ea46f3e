"""What ``status`` says of streams that are read at sites."""

from __future__ import annotations

from tests.unit.deployment.test_sites import parsed

from slackwater.model.records import Heartbeat
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.status.queries import at_sites, query_rows, stream_rows

S = 1_000_000
Q = QueryDefinition("q", 0, 0, 250_000, parsed().queries["q"])
QUERIES = {"q": Q}


def root(answered_s: int, exact_s: int, **remote: int) -> dict[str, Heartbeat]:
    """Return the heartbeats of the root, and of the proxy of the stream that is read here."""
    detail = {"stable_from": exact_s * S, "answered_to": answered_s * S} | {
        f"remote_to.{child.removeprefix('c')}": at * S for child, at in remote.items()
    }
    return {
        "root/q.0": Heartbeat("root/q.0", 1, 0, 0, 1, ready=True, states={}, detail=detail),
        "proxy/b": Heartbeat(
            "proxy/b", 1, 0, 0, 1, ready=True, states={}, detail={"complete_to": 1_000 * S}
        ),
    }


def test_a_site_is_said_with_how_far_its_panes_have_come() -> None:
    beats = root(100, 100, c0=100, c2=90)
    assert at_sites(QUERIES, beats) == {
        "a": ("north", 100 * S),
        "d": ("north", 100 * S),
        "c": ("west", 90 * S),
    }
    rows = query_rows(QUERIES, beats, {}, {})
    streams = {row.name: row for row in stream_rows(rows, beats, (), at_sites(QUERIES, beats))}
    assert streams["a"].text(None).startswith("site north has sent all to 1970-01-01")
    assert streams["a"].runs, "no proxy of it is expected here"
    assert not streams["a"].needs_attention
    assert streams["b"].site == ""


def test_only_the_site_that_is_cut_off_is_missing() -> None:
    beats = root(200, 100, c0=100, c2=210)
    (row,) = query_rows(QUERIES, beats, {}, {})
    assert (row.state, row.missing) == ("tentative", ("a", "d"))
    streams = stream_rows((row,), beats, (), at_sites(QUERIES, beats))
    assert {of.name for of in streams if of.is_missing} == {"a", "d"}


def test_a_site_of_which_nothing_has_come() -> None:
    beats = root(100, 100)
    rows = query_rows(QUERIES, beats, {}, {})
    streams = {row.name: row for row in stream_rows(rows, beats, (), at_sites(QUERIES, beats))}
    assert streams["c"].text(None) == "nothing has come from site west yet"
