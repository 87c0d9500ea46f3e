"""What receivers of alerts get: bodies, and the pauses between attempts."""

from __future__ import annotations

import orjson

from slackwater.delivery.notices import (
    FIRST_WAIT_US,
    RESOLVED_AFTER_US,
    WAIT_US_MAX,
    AlertNotice,
    NoticeQueue,
    alertmanager_body,
    renewed_body,
    webhook_body,
)
from slackwater.delivery.records import AlertRecord, AlertState, Firing
from slackwater.delivery.view import AlertView

S = 1_000_000
NOW = 1_000 * S


def record(state: AlertState, *, tentative: bool = False, key: str = "room") -> AlertRecord:
    began = Firing(
        f"{key}-{tentative}", 10 * S, 20 * S, {"t_avg": 27.5}, ("s1",) if tentative else (),
        tentative=tentative,
    )  # fmt: skip
    exact = {"t_avg": 20.0} if state in {"confirmed", "withdrawn"} else None
    progress = {"exact_run": 1}
    return AlertRecord(
        "hot", "climate", key, state, began, 30 * S, 31 * S, 32 * S, exact, progress=progress
    )


def test_a_webhook_gets_both_values_and_nothing_of_the_evaluation() -> None:
    body = orjson.loads(webhook_body(record("withdrawn", tentative=True)))
    assert (body["state"], body["values"], body["exact"]) == (
        "withdrawn",
        {"t_avg": 27.5},
        {"t_avg": 20.0},
    )
    assert body["event_id"] == "room-True-withdrawn"
    assert "progress" not in body


def test_alertmanager_sees_one_alert_from_tentative_to_confirmed() -> None:
    view = AlertView()
    labels = []
    for each in (
        record("firing", tentative=True),
        record("firing"),
        record("confirmed", tentative=True),
    ):
        view.take(each)
        (alert,) = orjson.loads(alertmanager_body(view, each, NOW))
        labels.append((alert["labels"], alert["endsAt"] > "1970-01-01T00:16:40"))
    assert labels == [({"alertname": "hot", "query": "climate", "key": "room"}, True)] * 3
    assert alert["annotations"]["tentative"] == "false"
    view.take(record("ended"))
    (alert,) = orjson.loads(alertmanager_body(view, record("ended"), NOW))
    assert alert["endsAt"] == "1970-01-01T00:16:40.000000Z"


def test_what_stands_is_renewed_and_ends_by_itself_if_nobody_renews_it() -> None:
    view = AlertView()
    assert renewed_body(view, NOW) is None
    view.take(record("firing"))
    view.take(record("firing", tentative=True, key="oven"))
    first, second = orjson.loads(renewed_body(view, NOW) or b"")
    assert first["labels"]["key"] == "room"
    assert second["annotations"]["missing"] == "s1"
    assert RESOLVED_AFTER_US == 240 * S
    assert first["endsAt"] == "1970-01-01T00:20:40.000000Z"


def test_attempts_have_growing_pauses_up_to_a_bound() -> None:
    queue = NoticeQueue(most=2)
    queue.add(AlertNotice("t", 1, "k", b""))
    queue.add(AlertNotice("t", 2, "l", b""))
    assert queue.room == 0
    now, waits = 0, []
    for _ in range(12):
        queue.failed(now, "away")
        assert queue.due(now) is None
        waits.append(queue.due_at - now)
        now = queue.due_at
    assert waits[:3] == [FIRST_WAIT_US, 2 * FIRST_WAIT_US, 4 * FIRST_WAIT_US]
    assert waits[-1] == WAIT_US_MAX
    assert queue.to_json()["last_error"] == "away"
    assert queue.acknowledged().key == "k"
    assert (queue.room, queue.failures, queue.due(now)) == (1, 0, AlertNotice("t", 2, "l", b""))


def test_a_view_forgets_old_ends_and_no_alert_that_stands() -> None:
    view = AlertView(ended_max=2)
    for i in range(5):
        view.take(record("firing", key=f"k{i}"))
        if i:
            view.take(record("ended", key=f"k{i}"))
    found = view.to_json()
    assert [each["key"] for each in found["firing"]] == ["k0"]
    assert [each["key"] for each in found["ended"]] == ["k4", "k3"]
