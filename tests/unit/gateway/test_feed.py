"""Each reader gets every change in order and once, or a snapshot equal to the state at its id."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slackwater.client.follow import Seen
from slackwater.codec.results import format_time
from slackwater.delivery.merge import Cut
from slackwater.gateway.changes import ROWS_BYTES_MAX, ROWS_MAX, Change, Changes
from slackwater.gateway.feed import SNAPSHOT, Feed
from slackwater.gateway.folded import folded, history_json, windows_json
from slackwater.gateway.hub import Hub
from slackwater.gateway.outbox import FRAMES_BYTES_MAX, FRAMES_MAX, LAGGED, Outbox
from slackwater.gateway.positions import ID_CHARS_MAX, format_id, parse_id
from slackwater.gateway.ring import Ring
from slackwater.gateway.streaming import pause_s


class Reader:
    """What a browser does: it applies events, and comes back with the last id that it has."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.got: list[dict[str, Any]] = []
        self.snapshots = 0
        self.is_lagged = False

    def read(self, data: bytes) -> None:
        for text in data.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in text.split("\n") if line)
            match fields.get("event"):
                case "snapshot":
                    self.snapshots += 1
                    self.got, self.id = [], None
                case "change":
                    self.got.append(orjson.loads(fields["data"]))
                    self.id = fields["id"]
                case "lagged":
                    self.is_lagged = True


def answer(
    part: int, seq: int, window: int, label: str = "stable", **more: object
) -> dict[str, Any]:
    return {
        "query": "q",
        "part": part,
        "seq": seq,
        "kind": "boundary",
        "label": label,
        "window_start": format_time(window * 10**6),
        "window_end": format_time(10**6),
        "windows": 1,
        "keys": 0,
        "epoch": 0,
        "missing": [],
        "due_at": format_time(0),
        "emitted_at": format_time(5_000),
        **more,
    }


def row(part: int, seq: int, key: str, average: float | None, kind: str = "stable") -> Any:
    figures = {"temperature": {"count": 1, "avg": average}}
    return {"part": part, "seq": seq, "kind": kind, "key": key, "fields": figures}


def taken(*records: dict[str, Any]) -> list[dict[str, Any]]:
    changes = Changes()
    made = [changes.take(Seen(record, 0, 0)) for record in records]
    return [orjson.loads(each.body) for each in made if each is not None]


def change(part: int, seq: int) -> Change:
    return Change(part, seq, orjson.dumps({"part": part, "seq": seq}))


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("take"), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("reconnect"), st.integers(0, 2), st.integers(0, 3)),
    ),
    max_size=80,
)


@settings(deadline=None, max_examples=300)
@given(actions=ACTIONS, ring_max=st.integers(1, 12), frames_max=st.integers(1, 6))
def test_each_reader_gets_every_change_in_order_and_once_or_a_snapshot(
    actions: list[tuple[str, int, int]], ring_max: int, frames_max: int
) -> None:
    feed, all_changes = Feed(Ring("q", changes_max=ring_max)), list[tuple[int, int]]()
    readers = [Reader() for _ in range(3)]
    outboxes = [Outbox(frames_max=frames_max) for _ in readers]

    def join(number: int, *, lost: int) -> None:
        """Come back; ``lost`` frames of what was sent last are lost with the connection."""
        feed.leave(outboxes[number])
        reader, outboxes[number] = readers[number], Outbox(frames_max=frames_max)
        reader.is_lagged = False
        frames = feed.join(outboxes[number], parse_id(reader.id, "q"))
        for frame in frames[: len(frames) - lost]:
            reader.read(frame)
        if lost:
            join(number, lost=0)  # the connection was cut in the middle of it

    for number in range(len(readers)):
        join(number, lost=0)
    seqs = {0: 3, 1: 0, 2: 0}  # part 0 is read from its middle
    for what, of, n in actions:
        if what == "publish":
            seqs[of] += n
            all_changes.append((of, seqs[of]))
            feed.publish([change(of, seqs[of])], {of: seqs[of] - n + 1})
        elif what == "take":
            readers[of].read(outboxes[of].take())
        else:
            join(of, lost=n)
    for number, reader in enumerate(readers):
        reader.read(outboxes[number].take())
        if reader.is_lagged:
            join(number, lost=0)
            reader.read(outboxes[number].take())
        got = [(each["part"], each["seq"]) for each in reader.got]
        assert len(set(got)) == len(got), "a change came twice"
        for part in seqs:
            of_part = [seq for p, seq in all_changes if p == part]
            mine = [seq for p, seq in got if p == part]
            # The end of all changes of the part, without a hole; none of them if the ring has
            # dropped all.
            assert mine == (of_part[-len(mine) :] if mine else [])
        last = dict(all_changes)  # the last one of each part
        assert parse_id(reader.id, "q") == (last or None)


HISTORY = st.lists(
    st.tuples(st.sampled_from(["stable", "tentative", "undo"]), st.integers(0, 1)), max_size=40
)


@settings(deadline=None, max_examples=300)
@given(history=HISTORY, changes_max=st.integers(1, 20))
def test_a_snapshot_equals_the_state_for_all_windows_that_it_answers(
    history: list[tuple[str, int]], changes_max: int
) -> None:
    records, seqs = list[dict[str, Any]](), [0, 0]
    stable_from, answered_to = [0, 0], [0, 0]

    def put(part: int, record: dict[str, Any]) -> None:
        records.append(record | {"seq": seqs[part], "part": part})
        seqs[part] += 1

    for what, part in history:
        if what == "tentative":
            put(part, answer(part, 0, answered_to[part], "tentative"))
            answered_to[part] += 1
        elif stable_from[part] < answered_to[part]:
            start, last = stable_from[part], answered_to[part] - 1
            times = {"undo_from": format_time(start * 10**6), "undo_to": format_time(last * 10**6)}
            put(part, {"kind": "undo", "epoch": 1, "emitted_at": format_time(0), **times})
            for window in range(start, answered_to[part]):
                put(part, answer(part, 0, window, epoch=1))
            stable_from[part] = answered_to[part]
        else:
            put(part, answer(part, 0, answered_to[part]))
            answered_to[part] += 1
            stable_from[part] = answered_to[part]
    ring = Ring("q")
    for each in records:
        made = Changes().take(Seen(each, 0, 0))
        assert made is not None
        ring.add(made)
    bodies = [orjson.loads(event.body) for event in ring.snapshot(changes_max)]
    assert len(bodies) == min(changes_max, len(records))
    complete = folded(taken(*records))
    for window_start, parts in folded(bodies).items():
        for number, of_part in parts.items():
            known = complete[window_start][number]
            assert of_part.answers[-1] == known.answers[-1]
            assert of_part.is_revoked == known.is_revoked


def test_a_reader_that_is_too_slow_is_lagged_and_costs_nobody_anything() -> None:
    feed, slow, fast = Feed(Ring("q")), Outbox(), Outbox()
    feed.join(slow, None)
    feed.join(fast, None)
    for seq in range(FRAMES_MAX + 1):
        feed.publish([change(0, seq)], {})
        assert fast.take()
    assert slow.is_lagged
    assert slow.take() == LAGGED
    assert slow.take() == b""
    assert not fast.is_lagged


def test_many_readers_are_written_to_less_often_each() -> None:
    assert [pause_s(readers) for readers in (1, 500, 1_000)] == [0.1, 0.1, 0.2]


def test_an_outbox_is_bounded_in_bytes() -> None:
    outbox = Outbox()
    outbox.offer(b"x" * (FRAMES_BYTES_MAX + 1))
    assert not outbox.is_lagged, "one frame is always taken"
    outbox.offer(b"x")
    assert outbox.is_lagged


def test_of_a_state_only_the_latest_waits() -> None:
    outbox = Outbox()
    for state in (b"1", b"2", b"3"):
        outbox.offer_state("status", state)
        outbox.offer_state("alerts", b"-" + state)
    outbox.offer(b"change ")
    assert outbox.take() == b"change 3-3"
    assert outbox.take() == b""


def test_a_state_that_may_wait_goes_with_what_comes_next_or_when_it_is_nudged() -> None:
    woken: list[int] = []
    outbox = Outbox(lambda: woken.append(1))
    outbox.offer_state("status", b"1", may_wait=True)
    assert not woken
    outbox.offer(b"change ")
    assert (woken, outbox.take()) == ([1], b"change 1")
    outbox.nudge()
    assert woken == [1], "nothing waits"
    outbox.offer_state("status", b"2", may_wait=True)
    outbox.nudge()
    assert (woken, outbox.take()) == ([1, 1], b"2")


async def test_a_status_is_sent_with_a_change_or_soon_and_at_once_if_kafka_is_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slackwater.gateway.hub.STATUS_WAITS_S_MAX", 0.01)
    hub, woken = Hub(), asyncio.Event()
    hub.set_status({"kafka": True, "at": 1})
    hub.join(Outbox(woken.set), None, None)
    hub.set_status({"kafka": True, "at": 2})
    assert not woken.is_set()
    await asyncio.wait_for(woken.wait(), 5)
    woken.clear()
    hub.set_status({"kafka": False, "at": 3})
    assert woken.is_set()


def test_one_frame_is_made_for_all_readers() -> None:
    feed, outboxes = Feed(Ring("q")), [Outbox() for _ in range(3)]
    for outbox in outboxes:
        feed.join(outbox, None)
    feed.publish([change(0, 0)], {})
    assert len({id(outbox._frames[0]) for outbox in outboxes}) == 1


def test_readers_that_begin_share_the_frames_and_copy_no_change() -> None:
    """A thousand that come at once would otherwise have a copy each of 2 MB."""
    feed = Feed(Ring("q"))
    feed.publish([change(0, seq) for seq in range(5)], {})
    begun = [feed.join(Outbox(), None)[1:] for _ in range(3)]
    back = [feed.join(Outbox(), {0: 1}) for _ in range(3)]
    for of, first in ((begun, 0), (back, 2)):
        kept = [event.frame for event in feed.ring.snapshot()][first:]
        assert [[*map(id, frames)] for frames in of] == [[*map(id, kept)]] * 3


def test_a_ring_is_bounded_in_changes_and_in_bytes() -> None:
    few, small = Ring("q", changes_max=3), Ring("q", bytes_max=200)
    for seq in range(100):
        few.add(change(0, seq))
        small.add(Change(0, seq, b"x" * 60))
    assert len(few) == 3
    assert len(small) == 2
    small.add(Change(0, 100, b"x" * 1_000))
    assert len(small) == 1, "the last one is kept, whatever its size"


def test_another_reading_of_the_parts_continues_an_id() -> None:
    """After a restart of the gateway the parts may come in another order."""
    first, second = Ring("q"), Ring("q")
    for part, seq in ((0, 0), (0, 1), (1, 0), (1, 1)):
        first.add(change(part, seq))
    for part, seq in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2)):
        second.begin(part, 0)
        second.add(change(part, seq))
    events = list(first.snapshot())
    missed = second.after(parse_id(events[1].id, "q") or {})
    assert missed is not None
    assert [(e.part, e.seq) for e in missed] == [(1, 0), (1, 1), (0, 2)]
    assert [e.id for e in missed] == ["q/0:1,1:0", "q/0:1,1:1", "q/0:2,1:1"]


@pytest.mark.parametrize(
    "forged",
    [
        *("", "q", "q/", "other/0:1", "q/0:1,", "q/0:1,0:2", "q/-1:2", "q/a:b", "q/0:1;1:2"),
        *("q/0:99999999999999999999", "q/0:1\n1:2", f"q/{'0:1,' * ID_CHARS_MAX}", "q/\u0663:1"),
    ],
)
def test_an_id_that_is_none_gives_a_snapshot(forged: str) -> None:
    assert parse_id(forged, "q") is None


@pytest.mark.parametrize("ahead", [{0: 5}, {7: 0}, {0: 10**17}])
def test_positions_that_nobody_was_sent_give_a_snapshot(ahead: dict[int, int]) -> None:
    feed = Feed(Ring("q"))
    feed.publish([change(0, 4)], {0: 0})
    assert feed.join(Outbox(), ahead)[0] == SNAPSHOT
    assert feed.join(Outbox(), {0: 4}) == []


def test_ids_are_those_of_positions() -> None:
    assert format_id("climate", {1: 7, 0: 1841}) == "climate/0:1841,1:7"
    assert parse_id("climate/0:1841,1:7", "climate") == {0: 1841, 1: 7}


def test_a_change_is_a_window_with_its_rows() -> None:
    (made,) = taken(row(0, 0, "a", 1.5), row(0, 1, "b", None), answer(0, 2, 7, keys=2))
    assert (made["kind"], made["seq"], made["label"]) == ("answer", 2, "stable")
    assert [each["key"] for each in made["rows"]] == ["a", "b"]
    assert "incomplete" not in made
    (made,) = taken(answer(0, 2, 7, keys=2))
    assert made["incomplete"]


def test_the_rows_of_a_change_are_bounded() -> None:
    rows = [row(0, seq, f"k{seq}", 1.0) for seq in range(ROWS_MAX + 7)]
    (made,) = taken(*rows, answer(0, len(rows), 7, keys=len(rows)))
    assert (len(made["rows"]), made["rows_left_off"]) == (ROWS_MAX, 7)
    assert "incomplete" not in made
    long = [row(0, seq, str(seq) * 65_536, 1.0) for seq in range(9)]
    (made,) = taken(*long, answer(0, 9, 7, keys=9))
    assert made["rows_left_off"] == 9 - len(made["rows"]) > 0
    assert len(orjson.dumps(made)) < ROWS_BYTES_MAX + 4_096


def test_a_cut_discards_the_rows_before_it_and_is_a_change() -> None:
    changes = Changes()
    assert changes.take(Seen(row(0, 0, "a", 1.0), 0, 0)) is None
    cut = changes.take(Cut(0, 1, 8))
    assert cut is not None
    assert (cut.seq, orjson.loads(cut.body)["kind"]) == (8, "cut")
    made = changes.take(Seen(answer(0, 9, 7, keys=0), 0, 0))
    assert made is not None
    assert orjson.loads(made.body)["rows"] == []


def test_text_in_keys_stays_one_line() -> None:
    evil = "<img src=x onerror=alert(1)>\n\nevent: change\ndata: {}\u202e\u2028"
    (made,) = (m for m in [_change_of(evil)] if m is not None)
    assert b"\n" not in made.body
    assert orjson.loads(made.body)["rows"][0]["key"] == evil


def _change_of(key: str) -> Change | None:
    changes = Changes()
    changes.take(Seen(row(0, 0, key, 1.0), 0, 0))
    return changes.take(Seen(answer(0, 1, 7, keys=1), 0, 0))


@pytest.fixture
def corrected() -> Callable[[], list[dict[str, Any]]]:
    start = format_time(7 * 10**6)

    def made() -> list[dict[str, Any]]:
        return taken(
            row(0, 0, "a", 20.0, "tentative"),
            answer(0, 1, 7, "tentative", keys=1, epoch=1, missing=["room-2"]),
            {
                "query": "q",
                "part": 0,
                "seq": 2,
                "kind": "undo",
                "epoch": 1,
                "undo_from": start,
                "undo_to": start,
                "emitted_at": format_time(9),
            },
            row(0, 3, "a", 20.5),
            answer(0, 4, 7, keys=1, epoch=1),
        )

    return made


def test_a_value_is_explained(corrected: Callable[[], list[dict[str, Any]]]) -> None:
    steps = history_json(corrected(), format_time(7 * 10**6), "a")
    assert [step["what"] for step in steps] == ["tentative", "undo", "stable"]
    assert steps[0]["missing"] == ["room-2"]
    assert steps[0]["after_due_ms"] == 5.0
    assert steps[2]["difference"] == {"temperature": {"count": 0, "avg": 0.5}}
    assert history_json(corrected(), format_time(7 * 10**6), "nobody") == []
    assert history_json(corrected(), format_time(0), "a") == []


def test_the_state_of_a_window(corrected: Callable[[], list[dict[str, Any]]]) -> None:
    states = [windows_json(corrected()[:n], 10)[0]["state"] for n in (1, 2, 3)]
    assert states == ["tentative", "withdrawn", "corrected"]
    assert windows_json(corrected(), 10)[0]["rows"][0]["key"] == "a"
    assert windows_json(taken(answer(0, 0, 7)), 10)[0]["state"] == "exact"
