"""Properties of every history; each checker is named after its property."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations, pairwise

from tests.iads_simulator.control import Entries, key_of, unaccounted
from tests.iads_simulator.world import History, Life

from slackwater.protocols.iads.messages import Payload, View

STABLE_AGAIN_US = 2_000_000


def same_messages_within_the_transitional_set(history: History) -> None:
    moves = defaultdict(list)
    for life, views in history.views.items():
        for (_, old, _), (_, new, transitional) in pairwise(views):
            moves[old, new].append((life, transitional))
    for (old, new), lives in moves.items():
        for (one, t1), (other, t2) in combinations(lives, 2):
            assert t1 == t2, f"{one} and {other} differ about T of {new}"
            assert {one.name, other.name} <= t1
            assert _by_sender(history, one, old) == _by_sender(history, other, old), (
                f"{one} and {other} delivered different messages in {old}"
            )


def _by_sender(history: History, life: Life, view: View) -> dict[str, list[Payload]]:
    found = defaultdict(list)
    for sender, payload in history.delivered[life, view]:
        found[sender].append(payload)
    return found


def fifo_without_gaps(history: History) -> None:
    for (life, view), messages in history.delivered.items():
        mine = _by_sender(history, life, view)
        assert sum(map(len, mine.values())) == len(messages)
        for sender, payloads in mine.items():
            process = next(p for p in view.members if p.name == sender)
            sent = _by_sender(history, Life(*process), view)[sender]
            assert payloads == sent[: len(payloads)], f"{life} in {view} from {sender}"


def view_numbers_rise(history: History) -> None:
    for name, numbers in history.numbers.items():
        assert all(a < b for a, b in pairwise(numbers)), f"{name}: {numbers}"


def total_order_while_stable(history: History) -> None:
    views = defaultdict(list)
    for (life, view), stamps in history.ordered.items():
        assert stamps == sorted(stamps), f"{life} in {view}"
        views[view].append(stamps)
    for view, orders in views.items():
        for one, other in combinations(orders, 2):
            n = min(len(one), len(other))
            assert one[:n] == other[:n], f"two orders in {view}"


def each_request_is_answered_once(history: History) -> None:
    answers = Counter(response.request_id for _, _, response in history.answered)
    assert max(answers.values(), default=1) == 1
    survivors = {life for life, views in history.views.items() if life.name in history.final}
    newest = {life.name: life for life in sorted(survivors)}
    for request_id, (at, life) in history.requested.items():
        if newest[life.name] == life and at < history.end - 1_000_000:
            assert request_id in answers, f"{request_id} of {life} has no response"


def no_answered_operation_is_lost(history: History) -> None:
    if history.control is not None:
        _none_is_gone_unnamed(history, history.control)
        return
    for _, life, response in history.answered:
        for name, (_, _, state) in history.final.items():
            if response.stamp not in {stamp for stamp, _ in state}:
                late = history.end - 500_000
                at = next(at for at, _, r in history.answered if r is response)
                assert at > late, f"{response} of {life} is not in the state of {name}"


def _none_is_gone_unnamed(history: History, noted: Entries) -> None:
    """With the control object: what a merge has overridden is named to the clients that are left.

    A client of a controller that crashed has lost its connection, and so has no refresh.
    """
    newest = {life.name: life for life in sorted(history.views)}
    finals = [state for _, _, state in history.final.values()]
    assert all(state == finals[0] for state in finals), "the states differ"
    for _, life, response in history.answered:
        operation = noted.operations.get(response.stamp)
        if response.response.refusal or key_of(operation) is None or newest[life.name] != life:
            continue
        if response.stamp in history.named[life]:
            continue
        assert not unaccounted(noted, finals[0], response.stamp, history.overridden), (
            f"{operation} at {response.stamp} is gone, and clients of {life} were not told"
        )


def stable_again_within_a_bound(history: History) -> None:
    names = frozenset(history.final)
    for name, (view, stable, _) in history.final.items():
        assert view.names == names, f"{name} is in {view}"
        assert stable, f"{name} is not stable"
    newest = {life.name: life for life in sorted(history.views)}
    for life in newest.values():
        at = history.refreshed[life][-1][0]
        assert at <= history.last_fault + STABLE_AGAIN_US, f"{life}: refresh at {at}"
        assert history.refreshed[life][-1][1].members == names


def a_merge_has_each_member_and_is_refreshed(history: History) -> None:
    """Section III: the states of all members of the view, each once, then a refresh."""
    for at, life, view, names in history.merged:
        assert names == view.names, f"{life} merged {sorted(names)} in {view}"
        refreshes = history.refreshed[life]
        died = (at, life) in history.died
        assert died or any(at == then and r.members == view.names for then, r in refreshes), (
            f"{life} merged in {view} and its clients were not told"
        )


def linearizable_while_stable(history: History) -> None:
    """In one view, a request made after a response has a greater stamp and a greater count."""
    views = {(life, v.number): v for life, all_ in history.views.items() for _, v, _ in all_}
    by_view = defaultdict(list)
    for at, life, response in history.answered:
        view = views[life, response.stamp.view_number]
        if response.stamp in history.ordered[life, view]:
            by_view[view].append((at, history.requested[response.request_id][0], response))
    for view, answers in by_view.items():
        for answered_at, _, earlier in answers:
            for _, requested_at, later in answers:
                if requested_at > answered_at:
                    assert earlier.stamp < later.stamp, f"{later} after {earlier} in {view}"
                    if history.control is None:
                        assert earlier.response < later.response, f"{later} after {earlier}"


CHECKERS = (
    same_messages_within_the_transitional_set,
    fifo_without_gaps,
    view_numbers_rise,
    total_order_while_stable,
    each_request_is_answered_once,
    no_answered_operation_is_lost,
    stable_again_within_a_bound,
    a_merge_has_each_member_and_is_refreshed,
    linearizable_while_stable,
)
