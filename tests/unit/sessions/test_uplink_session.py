"""An uplink's session: when it asks the centre, what it reads and sends, and what it reports."""

from __future__ import annotations

from typing import Any

from tests.support.uplinks import CHILD, PANE, pieces_of

from slackwater.model.errors import SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.merged import MergedRecord
from slackwater.model.records import Heartbeat
from slackwater.protocols.fargo.uplink import STALLED_US
from slackwater.sessions.effects import Append, LogLine, Perform
from slackwater.sessions.events import (
    HeartbeatReceived,
    LiveAt,
    PassedBy,
    PositionGone,
    Received,
    RecordDelivered,
    Replayed,
)
from slackwater.sessions.requests import AtCentre, Beginnings, FindDefinition, ReadMerged
from slackwater.sessions.uplink import ASK_AGAIN_US, LINE, OTHER_US_MAX, UplinkConfig, UplinkSession

SITE, CENTRE = ("sw.merged.q.0", 0), ("sw.merged.q.0", CHILD)
CUT = SlackwaterError("no answer")


class Linked:
    """A session, the site's log, and the centre."""

    def __init__(
        self, copy: int = 0, *, beginning: int = 0, children: tuple[int, ...] = (CHILD,)
    ) -> None:
        def why(found: Any) -> str:
            return "" if found == "same" else "it is another one"

        config = UplinkConfig("q", copy, 2, children, 1, 1, why)
        self.session = UplinkSession(config)
        self.definition, self.at_centre = "same", list[MergedRecord]()
        self.is_cut = False
        self.sent: list[MergedRecord] = []
        self.lines: list[str] = []
        self.asked = 0
        self.now = 0
        self._run(self.session.start(), beginning)

    def _run(self, procedure: Any, beginning: int = 0) -> None:
        try:
            request = next(procedure)
            while True:
                match request:
                    case Beginnings(logs):
                        request = procedure.send(dict.fromkeys(logs, beginning))
                    case AtCentre() if self.is_cut:
                        request = procedure.throw(CUT)
                    case AtCentre(FindDefinition("q")):
                        request = procedure.send(self.definition)
                    case AtCentre(ReadMerged(log, most)):
                        assert log == CENTRE
                        request = procedure.send(self.at_centre[-most:])
                    case _:
                        raise AssertionError(request)
        except StopIteration:
            return

    def turn(self, after_us: int = 0) -> list[MergedRecord]:
        """Take a turn; return what is sent."""
        self.now += after_us
        sent: list[MergedRecord] = []
        for effect in self.session.step(self.now):
            match effect:
                case Append(log, MergedRecord() as record):
                    assert log == CENTRE
                    sent.append(record)
                case Perform(procedure):
                    self.asked += 1
                    self._run(procedure)
                case LogLine(text):
                    self.lines.append(text)
                case _:
                    raise AssertionError(effect)
        self.sent += sent
        return sent

    def live(self, offset: int, record: MergedRecord) -> bool:
        """The live consumer reads a record; return whether the session takes it."""
        if self.session.needs(SITE, offset):
            assert self.session.take(Received(SITE, offset, record)) == 0
            return True
        self.session.take(PassedBy(SITE, offset))
        return False

    def arrives(self) -> None:
        """The next record is in the centre's log."""
        self.session.take(RecordDelivered(CENTRE, 0))

    @property
    def detail(self) -> dict[str, int]:
        return self.session.report().detail


def pane(number: int) -> MergedRecord:
    (record,) = pieces_of(number * PANE, number * PANE + PANE, 5)
    return record


def test_a_pane_is_sent_at_once_and_reported_when_it_has_arrived() -> None:
    linked = Linked()
    linked.turn()
    assert linked.live(0, pane(0))
    assert [of.start for of in linked.turn()] == [0]
    assert linked.detail["sent.0.0"] == 0
    linked.arrives()
    linked.turn()
    assert (linked.detail["sent.0.0"], linked.detail["has_to.0.0"]) == (1, PANE)
    assert linked.session.state == "STABLE"


def test_a_centre_with_another_query_is_asked_ever_more_rarely() -> None:
    """Each answer is the centre's registry, on a link that may be thin."""
    linked = Linked()
    linked.definition = "other"
    for _ in range(300):
        linked.turn(ASK_AGAIN_US)
    assert linked.asked <= 5 + 300 * ASK_AGAIN_US // OTHER_US_MAX
    linked.definition = "same"
    for _ in range(OTHER_US_MAX // ASK_AGAIN_US + 1):
        linked.turn(ASK_AGAIN_US)
    assert linked.session.state == "STABLE"


def test_until_the_centre_has_answered_nothing_is_read_and_it_works() -> None:
    linked = Linked()
    linked.is_cut = True
    linked.turn()
    assert not linked.live(0, pane(0))
    assert linked.session.wanted() == {}
    assert linked.session.report().ready
    assert linked.session.state == "UP_FAILURE"
    assert "sent.0.0" not in linked.detail, "what the centre has is not known"
    linked.turn(ASK_AGAIN_US // 2)
    assert linked.asked == 1
    linked.is_cut = False
    linked.turn(ASK_AGAIN_US)
    assert linked.asked == 2
    assert linked.session.wanted() == {(LINE, SITE): 0}
    linked.session.take(Replayed(LINE, SITE, 0, pane(0)))
    assert linked.session.wanted() == {}, "the live consumer goes on"
    assert linked.live(1, pane(1))
    assert [of.start for of in linked.turn()] == [0, PANE]
    assert linked.lines == ["uplink/q.0.a: no answer", "uplink/q.0.a: the centre has answered"]


def test_what_the_centre_has_is_dropped() -> None:
    linked = Linked()
    linked.at_centre = [pane(0), pane(1)]
    linked.turn()
    for n in range(3):
        linked.live(n, pane(n))
    assert [of.start for of in linked.turn()] == [2 * PANE]


def test_another_query_is_sent_nothing() -> None:
    linked = Linked()
    linked.definition = "other"
    linked.turn()
    linked.turn(ASK_AGAIN_US)
    assert linked.lines == ["uplink/q.0.a: it is another one"], "once"
    assert not linked.live(0, pane(0))
    linked.definition = "same"
    linked.turn(2 * ASK_AGAIN_US)
    assert linked.session.wanted() == {(LINE, SITE): 0}


def test_a_second_copy_waits_while_the_first_works_and_takes_over_when_it_dies() -> None:
    linked = Linked(copy=1)
    linked.now = 10 * STALLED_US
    linked.turn()

    def beat(*, has_to: int, age_us: int = 0) -> None:
        detail = {"linked": 1} | ({"has_to.0.0": has_to} if has_to > NEVER else {})
        first = Heartbeat("uplink/q.0.a", 1, 0, 0, -1, ready=True, states={}, detail=detail)
        linked.session.take(HeartbeatReceived(first, linked.now - age_us))

    assert linked.session.listens_to == ["uplink/q.0.a"]
    beat(has_to=NEVER)
    for n in range(4):
        linked.live(n, pane(n))
    assert linked.turn() == []
    beat(has_to=2 * PANE)
    assert linked.turn() == []
    assert linked.detail["unsent"] == 2
    beat(has_to=2 * PANE, age_us=2_000_000)
    assert [of.start for of in linked.turn()] == [2 * PANE, 3 * PANE]


def test_nothing_arrives_so_the_link_counts_as_cut() -> None:
    linked = Linked()
    linked.turn()
    linked.live(0, pane(0))
    linked.turn()
    states = [linked.session.is_linked]
    linked.turn(linked.session.config.stands_us)
    states.append(linked.session.is_linked)
    linked.arrives()
    linked.turn()
    assert [*states, linked.session.is_linked] == [True, False, True]


def test_a_log_whose_begin_has_been_deleted_is_read_from_there() -> None:
    linked = Linked(beginning=5)
    assert linked.session.live_offsets == {SITE: 5}
    linked.session.take(LiveAt(SITE, 9))
    linked.turn()
    assert linked.session.wanted() == {(LINE, SITE): 5}
    linked.session.take(PositionGone(LINE, SITE, 7))
    assert linked.session.wanted() == {(LINE, SITE): 7}


def test_a_hole_at_the_site_is_a_failure() -> None:
    linked = Linked()
    linked.turn()
    linked.live(0, pane(0))
    linked.live(1, pane(2))
    assert [of.start for of in linked.turn()] == [0]
    assert linked.session.state == "UP_FAILURE"
    assert not linked.live(2, pane(3))


def test_each_child_is_sent_under_its_number_and_reported_by_itself() -> None:
    """A mutant takes what the centre has of one child for what it has of the other."""
    linked = Linked(copy=1, children=(4, 2))
    linked.now, session = 10 * STALLED_US, linked.session
    logs = [("sw.merged.q.0", child) for child in (0, 1)]
    assert [*session.inputs] == logs
    for part in session.parts:
        part.panes.centre_has(0)
    session._centre.answered = True
    for offset, log in enumerate(logs):
        for number in range(2 - offset):
            assert session.take(Received(log, number, pane(number))) == 0
    sent = [each for each in session.step(linked.now) if isinstance(each, Append)]
    panes = [(of.log, of.record.start) for of in sent if isinstance(of.record, MergedRecord)]
    assert panes == [
        (("sw.merged.q.0", 4), 0),
        (("sw.merged.q.0", 4), PANE),
        (("sw.merged.q.0", 2), 0),
    ]
    session.take(RecordDelivered(("sw.merged.q.0", 2), 0))
    detail = session.report().detail
    assert (detail.get("has_to.0.0"), detail.get("has_to.0.1")) == (0, PANE)
    assert (detail.get("sent.0.0"), detail.get("sent.0.1")) == (0, 1)
    other = {"linked": 1, "has_to.0.0": 2 * PANE}
    beat = Heartbeat("uplink/q.0.a", 1, 0, 0, -1, ready=True, states={}, detail=other)
    session.take(HeartbeatReceived(beat, linked.now))
    detail = session.report().detail
    assert (detail.get("has_to.0.0"), detail.get("has_to.0.1")) == (2 * PANE, PANE)
