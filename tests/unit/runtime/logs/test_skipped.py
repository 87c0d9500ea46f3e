"""Foreign records: their counts, and the frequency of log lines."""

import logging

import pytest

from slackwater.runtime.logs.skipped import LINE_EVERY_S, TOPICS_REPORTED_MAX, SkippedRecords


def test_every_record_is_counted_and_the_first_of_a_reason_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    skipped = SkippedRecords(lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for offset in range(1000):
            skipped.note("sw.registry", 0, offset, "not a registry entry", "not JSON")
        skipped.note("sw.registry", 0, 1000, "another reason")
    assert [record.getMessage() for record in caplog.records] == [
        "sw.registry:0:0 is skipped: not a registry entry (not JSON)",
        "sw.registry:0:1000 is skipped: another reason",
    ]
    assert skipped.counts() == {"sw.registry": 1001}
    caplog.clear()
    now_s = LINE_EVERY_S
    skipped.note("sw.registry", 0, 1001, "not a registry entry")
    assert [record.getMessage() for record in caplog.records] == [
        "sw.registry:0:1001 is skipped: not a registry entry; 999 more since the last line"
    ]


def test_a_heartbeat_names_the_topics_with_the_most(caplog: pytest.LogCaptureFixture) -> None:
    skipped = SkippedRecords()
    assert skipped.detail() == {}
    for topic in range(TOPICS_REPORTED_MAX + 3):
        for offset in range(topic + 1):
            skipped.note(f"sw.source.s{topic}", 0, offset, "foreign")
    detail = skipped.detail()
    assert detail.pop("skipped") == sum(range(TOPICS_REPORTED_MAX + 4))
    assert detail == {f"skipped:sw.source.s{t}": t + 1 for t in range(3, TOPICS_REPORTED_MAX + 3)}
