"""DPC, section 6.3: chains of nodes, here of queries. Rows dpc-9 and dpc-5.

The paper gives each SUnion of a chain all of X at the first failure, since all of them detect it at
the same time; tentative tuples and boundaries from upstream are forwarded at once. There is one
difference: deadlines are one margin apart, so that a stage emits before the next stage downstream
stops waiting for it (trace-13).
"""

from __future__ import annotations

from tests.paper.chain import Chain, missing_of
from tests.paper.stage import Settings, first_answers, label, labels, stable_answers

from slackwater.model.records import Kind
from slackwater.protocols.common.line import LineName

WINDOWS = Settings(window_ms=500)


def tentative_delays_ms(chain: Chain) -> list[float]:
    first = first_answers(chain.emitted)
    return [
        emitted.at_ms - start - chain.b.window_ms
        for start, emitted in first.items()
        if label(emitted.effect) == "tentative"
    ]


def test_6_3_a_chain_costs_one_bound() -> None:
    chain = Chain()
    chain.run_to(3_000)
    chain.sources["s1"].disconnect()
    chain.run_to(10_000)

    delays = tentative_delays_ms(chain)
    # The first stage emits four margins before X; the others forward its output at once.
    assert delays
    assert max(delays) == delays[0] == 2_000 - 4 * 50


def test_6_3_a_failure_shorter_than_the_bound_leaves_no_tentative_tuple_in_a_chain() -> None:
    """Of X = 8 s all but the margins of four stages are usable: 7.7 s, for any length."""
    patient = Settings(window_ms=500, bound_ms=8_000)
    chain = Chain(a=patient, b=patient)
    chain.run_to(3_000)
    chain.sources["s1"].disconnect()
    chain.run_to(3_000 + 7_700)
    chain.sources["s1"].reconnect()
    chain.run_to(14_000)

    assert labels(chain.a_root.emitted) == ["stable"]
    assert labels(chain.emitted) == ["stable"]


def test_4_2_3_tentative_boundaries_travel_downstream() -> None:
    """The chained orderer forks when its input passes tentatively, not at its deadline."""
    chain = Chain(others=("s3",), a=WINDOWS, b=WINDOWS)
    chain.run_to(3_000)
    chain.sources["s1"].disconnect()
    chain.run_to(10_000)

    latest = [s for s in chain.a_root.emitted if label(s.effect) == "tentative"]
    passed_on = [s for s in chain.emitted if label(s.effect) == "tentative"]
    assert latest[0].at_ms == passed_on[0].at_ms, "before b's own deadline, two margins later"
    assert {missing_of(s) for s in passed_on} == {("s1",)}
    live = [r for r in chain.b_orderer.logs[LineName.LIVE] if r.kind is not Kind.START]
    assert live
    assert chain.b_orderer.logs[LineName.STABLE][-1].bucket_end <= 3_500_000


def test_4_4_a_chain_is_corrected_by_each_of_its_nodes() -> None:
    chain = Chain(others=("s3",), a=WINDOWS, b=WINDOWS)
    chain.run_to(3_000)
    chain.sources["s1"].disconnect()
    chain.run_to(8_000)
    chain.sources["s1"].reconnect()
    chain.run_to(12_000)

    for emitted in (chain.a_root.emitted, chain.emitted):
        assert "undo" in labels(emitted)
        assert "rec_done" in labels(emitted)
        assert labels(emitted)[-1] == "stable"
    complete = Chain(others=("s3",), a=WINDOWS, b=WINDOWS)
    complete.run_to(12_000)
    assert stable_answers(chain.emitted) == stable_answers(complete.emitted)
