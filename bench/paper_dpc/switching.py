"""Section 5.1: the time to switch to another replica of an upstream neighbour.

A query without a window in buckets of 20 ms, so that an answer is due often; two orderer replicas.
One replica after the other is killed with -9 and restarted: some in steady state, some in a failure
of a stream while the other one is tentative too, some just before that failure's deadline, when the
root waits for a replica that last reported STABLE although it has ended. The root's log has the
time of the replica's last heartbeat, of its loss, and of the first answer after that. A client
measures the delay of the answers.

With a machine per replica nothing else is needed. Here the ended replica's successor would take
half of this machine for its start, a second of CPU time, during the measurement of the others: it
is held back for that time.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Any, NamedTuple

from bench.paper_dpc.results import First, Results, figures
from bench.paper_dpc.system import System, deployment_text, running

BOUND_S = 1.0
MARGIN_S = 0.05
KILLS = {"steady": 10, "tentative": 8, "deadline": 6}
QUICK = {"steady": 2, "tentative": 2, "deadline": 1}
QUERY = f"{{from: [s1, s2], bound: {BOUND_S:g}s}}"
AWAY_S = 1.2
NOTICED_S_MAX = 0.5
"""Time after which the root has detected any loss; later reports are of other events."""
_REPORTED = re.compile(
    r"^(\S+) INFO .* switched from replica (\d) of child 0: last heartbeat ([\d.]+) ms before .*"
    r" answered ([\d.]+) ms after",
    re.MULTILINE,
)


class Kill(NamedTuple):
    """The time and the replica of a kill, and the delays of answers after it (s).

    ``empty`` answers lack even the readings of the other replica: in each window a stream has
    readings.
    """

    at: float
    replica: int
    extra_s: list[float]
    empty: int


class ReportedSwitch(NamedTuple):
    """The root's report of one lost replica: time of the answer, and two durations (s)."""

    at: float
    replica: int
    detection_s: float
    switch_s: float


def run(*, quick: bool) -> dict[str, Any]:
    """Measure."""
    text = deployment_text(("s1", "s2"), {"q": QUERY})
    kills: dict[str, list[Kill]] = {}
    with running(text, per_s=100, w_us=20_000, flush_us=20_000) as system:
        results = system.follow("q")
        replica = 0
        for kind, count in (QUICK if quick else KILLS).items():
            for _ in range(count):
                kills.setdefault(kind, []).append(kill(system, results, kind, replica))
                replica = 1 - replica
        reported = [_read(*groups) for groups in _REPORTED.findall(system.log("root/q.0"))]
        results.stop()
    # A tentative replica is not waited for: its end is not reported.
    waited_for = [one for kind in ("steady", "deadline") for one in kills[kind]]
    noticed = [t for one in waited_for if (t := _of(one, reported)) is not None]
    if not noticed:
        raise SystemExit("the root has told of no death of a replica: nothing was measured")
    return {
        "kills": sum(map(len, kills.values())),
        "told": f"{len(noticed)} of {len(waited_for)}",
        "empty": sum(one.empty for of in kills.values() for one in of),
        "others_told": len(reported) - len(noticed),
        "detection_s": figures([one.detection_s for one in noticed]),
        "switch_s": figures([one.switch_s for one in noticed]),
        "extra_s": {
            kind: figures([late for one in of for late in one.extra_s])
            for kind, of in kills.items()
        },
    }


def kill(system: System, results: Results, kind: str, replica: int) -> Kill:
    """Kill one replica; return the effect on the answers due in the second after it."""
    name = f"orderer/q.0.{'ab'[replica]}"
    system.settle()
    cut = None
    if kind != "steady":
        cut = system.feeder.cut("s1")
        wait = BOUND_S - 2 * MARGIN_S + (1.0 if kind == "tentative" else -0.04)
        time.sleep(max(cut + wait - time.time(), 0))
    at = system.kill(name, away_s=AWAY_S)
    time.sleep(1.5)
    if cut is not None:
        system.feeder.reconnect("s1")
    system.wait_ready([name])
    results.wait_until_stable(time.time(), 60)
    if kind == "deadline":
        # The windows since the cut are late in any case, the first by the bound.
        assert cut is not None
        hit = results.between(cut, at)
        late = max(one.late for one in hit)
        return Kill(at, replica, [late - (BOUND_S - 2 * MARGIN_S)], _empty(hit))
    usual = figures([one.late for one in results.between(at - 0.6, at - 0.1)])["p50"]
    hit = results.between(at - 0.1, at + 1.0)
    return Kill(at, replica, [one.late - usual for one in hit], _empty(hit))


def _empty(hit: list[First]) -> int:
    return sum(one.empty for one in hit)


def _read(at: str, replica: str, received_ms: str, answered_ms: str) -> ReportedSwitch:
    when = datetime.fromisoformat(at).timestamp()
    return ReportedSwitch(when, int(replica), float(received_ms) / 1000, float(answered_ms) / 1000)


def _of(one: Kill, reported: list[ReportedSwitch]) -> ReportedSwitch | None:
    """Return the root's report of this loss."""
    of = (t for t in reported if t.replica == one.replica and 0 < t.at - one.at < NOTICED_S_MAX)
    return next(of, None)
