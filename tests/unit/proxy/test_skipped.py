"""Numbers that devices skip: the law of the count, and from a message to status and metrics."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scenarios.test_r10_boundaries_promise_only_what_was_read import THEIRS, Fed
from tests.support.proxy_world import SPEC, S, World
from tests.unit.proxy.test_pushed import PushWorld

from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import HttpInputSpec
from slackwater.model.errors import DeploymentError
from slackwater.proxy.http.bodies import JSON, NDJSON, reader_for
from slackwater.proxy.http.tables import CSV
from slackwater.proxy.skipped import GAPS_PER_DEVICE_MAX, SkippedNumbers, with_counter
from slackwater.status.observed import counters, phrases


def note(seen: SkippedNumbers, numbers: list[float], devices: str = "", at: int = 0) -> None:
    """Note a batch of readings, each a second after the one before; of one device, or of these."""
    names = devices or "a" * len(numbers)
    order = "".join(dict.fromkeys(names))
    index = np.array([order.index(name) for name in names], np.int64)
    times = np.arange(at, at + len(numbers), dtype=np.int64)
    seen.note(list(order), index, np.array(numbers, np.float64), times)


@given(
    st.integers(0, 1 << 32),
    st.integers(1, 40),
    st.integers(1, 12),
    st.integers(0, GAPS_PER_DEVICE_MAX),
)
def test_what_has_not_come_is_counted_in_any_order_and_any_batches(
    seed: int, sent: int, batch: int, lost: int
) -> None:
    rng = Random(seed)
    missing = set(rng.sample(range(1, sent), min(lost, sent - 1))) if sent > 1 else set()
    came = [(0, number, device) for device in "ab" for number in range(sent)]
    came = [each for each in came if each[1] not in missing]
    late = [(at + rng.randrange(6), number, device) for at, (_, number, device) in enumerate(came)]
    first = [(-1, 0, "a"), (-1, 0, "b")]
    rest = sorted(each for each in late if each[1])
    seen = SkippedNumbers("s")
    in_order = [*first, *rest]
    for at in range(0, len(in_order), batch):
        of_batch = in_order[at : at + batch]
        numbers, devices = [float(n) for _, n, _ in of_batch], "".join(d for *_, d in of_batch)
        note(seen, numbers, devices)
    largest = {d: max(n for _, n, device in in_order if device == d) for d in "ab"}
    expected = {d: len([n for n in missing if n < largest[d]]) for d in "ab"}
    assert seen.detail()["skipped"] == sum(expected.values())
    shown = {f"skipped.{device}": n for device, n in expected.items() if n}
    assert {n: v for n, v in seen.detail().items() if n.startswith("skipped.")} == shown


def test_a_counter_that_begins_again_skips_nothing() -> None:
    seen = SkippedNumbers("s")
    note(seen, [7.0, 8.0], at=0)
    note(seen, [0.0, 1.0], at=10)
    note(seen, [2.0, 4.0], at=20)
    assert seen.detail()["skipped"] == 1


def test_repetitions_and_readings_without_a_number_count_nothing() -> None:
    seen = SkippedNumbers("s")
    note(seen, [5.0, 6.0, 9.0], at=10)
    note(seen, [5.0, 6.0, np.nan, 1.5, 2.0**60], at=0)
    assert seen.detail() == {"skipped": 2, "skipped_devices": 1, "skipped.a": 2}


def test_the_number_of_devices_is_bounded() -> None:
    seen = SkippedNumbers("s", devices_max=2)
    for at, device in enumerate("abc"):
        note(seen, [1.0, 3.0], 2 * device, at=10 * at)
    assert seen.detail() == {"skipped": 3, "skipped_devices": 2, "skipped.b": 1, "skipped.c": 1}
    note(seen, [9.0], "a", at=40)
    assert seen.detail()["skipped"] == 3, "it begins again"


def test_the_first_the_second_and_the_fourth_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    seen = SkippedNumbers("room")
    with caplog.at_level(logging.WARNING):
        for number in (0.0, 2.0, 4.0, 6.0, 8.0):
            note(seen, [number], at=int(number))
    assert caplog.messages == [
        f"stream room: devices have skipped {n} numbers (a {n})" for n in (1, 2, 4)
    ]


def test_status_has_one_line_of_the_worst_devices() -> None:
    detail = {"skipped": 1_200, "skipped_devices": 2, "skipped.a": 200, "skipped.b": 1_000}
    assert list(phrases(detail)) == [" 1,200 numbers skipped by 2 devices: b 1,000, a 200"]
    assert counters(detail) == {"skipped": 1_200, "skipped_devices": 2}


COUNTED = replace(SPEC, http=HttpInputSpec(sequence="meta.n"), expect_every_us=10 * S)


def test_a_counter_over_http(tmp_path: Path) -> None:
    """It is no field of the readings."""
    world = PushWorld(tmp_path, COUNTED)
    proxy = world.proxy()
    for second, number in ((1000, 3), (1001, 4), (1002, 7)):
        body = {"node": "n", "ts": second, "t": 1.0, "meta": {"n": number}}
        assert world.post(proxy, body).counts == {"accepted": 1}
    answer = world.post(proxy, {"node": "n", "ts": 1003, "t": 1.0})
    assert answer.counts == {"accepted": 1}, "a reading may have none"
    world.run(proxy, 1)
    assert len(world.readings()) == 4
    detail = proxy.detail()
    assert (detail["skipped"], detail["skipped.n"]) == (2, 2)
    assert {name for name in detail if name.startswith("has.")} == {"has.t"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (JSON, b'[{"node": "n", "ts": 1, "t": 2, "n": 5}, {"node": "n", "ts": 2, "t": 2, "n": 8}]'),
        (NDJSON[0], b'{"node": "n", "ts": 1, "t": 2, "n": 5}\n{"node": "n", "ts": 2, "n": 8}'),
        (CSV, b"node,ts,t,n\nn,1,2,5\nn,2,2,8\n"),
    ],
)
def test_each_format_of_a_body_has_the_counter_last(kind: str, body: bytes) -> None:
    spec = replace(COUNTED, http=HttpInputSpec(sequence="n"))
    reader = reader_for(spec, kind, 0)
    assert reader is not None
    assert reader(body).parsed.values[-1].tolist() == [5, 8]


def test_a_counter_of_a_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path, spec=replace(SPEC, topic=replace(THEIRS, sequence="n")))
    fed = Fed(world, monkeypatch)
    writer = world.broker.writer(world.failures.append)
    for second, number in ((1000, 1), (1001, 2), (1002, 6), (1003, 4)):
        value = json.dumps({"node": "d", "ts": second, "t": 1.0, "n": number}).encode()
        writer.append(THEIRS.name, 0, value)
    fed.proxy.begin()
    fed.bring()
    world.run(fed.proxy, 2)
    assert fed.readings() == 4
    assert fed.proxy.detail()["skipped.d"] == 2, "3 and 5: 4 came later"


def test_a_stream_without_a_counter_is_parsed_as_before() -> None:
    assert with_counter(SPEC) is SPEC


FILE = """\
apiVersion: slackwater/v1
streams:
  s:
    {source}
    key: {{field: k}}
    time: {{field: ts, unit: ms}}
    fields: [v]
    sporadic: true
queries:
  q: {{from: [s], window: {{size: 1s}}, aggregate: [sum], bound: 2s}}
"""


@pytest.mark.parametrize(
    "source",
    ["http: {sequence: {field: meta.n}}", "topic: {name: t, format: json, sequence: {field: n}}"],
)
def test_it_is_declared(source: str) -> None:
    spec = parse_deployment(FILE.format(source=source), "f.yaml").deployment.streams["s"]
    assert spec.counter == ("meta.n" if spec.http else "n")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("http: {sequence: n}", "streams.s.http.sequence"),
        ("http: {sequence: {field: 'a..b'}}", "streams.s.http.sequence.field"),
        ("topic: {name: t, format: json, sequence: {field: ''}}", "streams.s.topic.sequence"),
        ("topic: {name: t, format: number, sequence: {field: n}}", "streams.s.topic.sequence"),
    ],
)
def test_bad_declarations_name_the_line(source: str, place: str) -> None:
    with pytest.raises(DeploymentError) as error:
        parse_deployment(FILE.format(source=source), "f.yaml")
    assert any("f.yaml:4" in line and place in line for line in str(error.value).splitlines())
