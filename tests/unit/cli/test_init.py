"""``slackwater init``: what is guessed of the sample files, against what is declared for them."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.ports import free_port
from typer.testing import CliRunner

from slackwater.cli.app import app
from slackwater.cli.drafting.command import run_init
from slackwater.cli.drafting.draft import (
    MeasuredStream,
    deployment_text,
    keys_of_sample,
    parsed_times,
)
from slackwater.cli.drafting.guesses import draft_stream, field_name, stream_name
from slackwater.cli.drafting.measured import measure, measure_texts, nice
from slackwater.cli.drafting.samples import csv_sample
from slackwater.cli.drafting.topics import sample_of
from slackwater.deployment.parse import load_deployment, parse_deployment
from slackwater.deployment.yaml_text import scalar
from slackwater.formats.csvfile import CsvFile
from slackwater.formats.readingsfile import open_readings
from slackwater.judge.readers.files import read_stream
from slackwater.model.deployment import Deployment, StreamSpec
from slackwater.model.errors import DeploymentError, SlackwaterError, UsageError
from slackwater.rehearsal.plan import RehearsalPlan, make_plan
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.logs.transport import RawRecord

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs/examples"
DATA = ROOT / "tests/data"
TABLES = sorted(path for path in EXAMPLES.glob("*.csv"))
MESSAGES = [
    path for path in sorted(EXAMPLES.iterdir())
    if path.suffix in (".json", ".ndjson") and "senml" not in path.name
]  # fmt: skip
RUN = CliRunner()


def no_cluster() -> Cluster:
    raise AssertionError("a file needs no cluster")


def drafted(path: Path, tmp_path: Path) -> Deployment:
    output = tmp_path / "drafted.yaml"
    run_init([str(path)], output, no_cluster)
    return load_deployment(output)


def only(deployment: Deployment) -> StreamSpec:
    (stream,) = deployment.streams.values()
    return stream


def declared(path: Path) -> StreamSpec:
    """Return the stream that the example's page declares by hand."""
    return only(load_deployment(path.with_suffix(".yaml")))


def times_of(spec: StreamSpec, path: Path) -> Any:
    return np.concatenate([piece.arrived.stimes for piece in CsvFile(spec, path).pieces()])


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_a_draft_of_an_example_declares_what_its_page_does(path: Path, tmp_path: Path) -> None:
    found, by_hand = only(drafted(path, tmp_path)), declared(path)
    # The zone of local times is not in a file: a draft reads them as UTC, and says so.
    in_utc = replace(by_hand, time=replace(by_hand.time, zone=found.time.zone, fold="refuse"))

    assert found.key.column == by_hand.key.column
    assert found.time.columns == by_hand.time.columns
    assert found.csv == by_hand.csv
    assert {field.source for field in by_hand.fields} <= {field.source for field in found.fields}
    assert times_of(found, path).tolist() == times_of(in_utc, path).tolist()
    assert (found.topic, found.http, found.mqtt) == (None, None, None)


@pytest.mark.parametrize("path", MESSAGES, ids=lambda path: path.stem)
def test_a_draft_of_json_declares_what_its_page_does(path: Path, tmp_path: Path) -> None:
    found, by_hand = only(drafted(path, tmp_path)), declared(path)

    # By hand they are posted, and a draft of readings without a time is, too.
    assert (found.http is None) == (by_hand.time.from_ is None)
    assert found.key.parts == by_hand.key.parts
    assert found.time.parts == by_hand.time.parts
    assert (found.time.unit, found.time.format) == (by_hand.time.unit, by_hand.time.format)
    assert {field.source for field in by_hand.fields} <= {
        field.source for field in found.fields
    } | {"state.mode"}


@pytest.mark.parametrize(
    ("file", "key", "unit", "disorder_us", "window_us"),
    [
        ("room_climate/node-1.csv.gz", "node", "ms", 100_000, 60_000_000),
        ("nab/speed_t4013.csv.gz", None, "iso", 100_000, 3_600_000_000),
        ("nab/machine_temperature_system_failure.csv.gz", None, "iso", 100_000, 3_600_000_000),
        ("air_quality.csv.gz", None, None, 100_000, 86_400_000_000),
    ],
)
def test_drafts_of_real_data(
    file: str, key: str | None, unit: str | None, disorder_us: int, window_us: int, tmp_path: Path
) -> None:
    deployment = drafted(DATA / file, tmp_path)
    stream, query = only(deployment), deployment.queries["averages"]

    assert (stream.key.column, stream.time.unit) == (key, unit)
    assert stream.disorder_us == disorder_us
    assert query.window is not None
    assert query.window.size_us == window_us


def test_readings_that_will_be_late_are_counted_in_the_draft(tmp_path: Path) -> None:
    path = DATA / "nab/machine_temperature_system_failure.csv.gz"
    stream = only(drafted(path, tmp_path))
    times = times_of(stream, path)
    late = np.count_nonzero(np.maximum.accumulate(times) - times > stream.disorder_us)

    text = (tmp_path / "drafted.yaml").read_text().replace("\n    # ", " ")
    assert f"{late} of {len(times):,} will be late (quarantine): is the file sorted?" in text


def test_a_draft_of_several_files_can_be_planned_and_rehearsed(tmp_path: Path) -> None:
    paths = [tmp_path / f"node-{n}.csv.gz" for n in (1, 2)]
    for path in paths:
        with gzip.open(DATA / "room_climate" / path.name, "rt") as complete:
            path.write_bytes(gzip.compress("".join(islice(complete, 400)).encode()))
    output = tmp_path / "rooms.yaml"
    done = RUN.invoke(app, ["init", *map(str, paths), "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert "slackwater plan" in done.output

    planned = RUN.invoke(app, ["plan", str(output), "--data-dir", str(tmp_path)])
    assert "the deployment fits this machine" in planned.output
    plan = make_plan(
        load_deployment(output),
        {f"node-{n}": path for n, path in zip((1, 2), paths, strict=True)},
        speed=60.0,
        duration_us=20_000_000,
        faults=["at=5s silence node-2 for 8s"],
        seed=0,
        processes=[],
    )
    windows, _ = plan.expected()
    assert windows["averages"]
    assert all(stream.malformed == 0 for stream in plan.inputs.values())


def planned(deployment: Deployment, path: Path) -> RehearsalPlan:
    (name,) = deployment.streams
    return make_plan(
        deployment, {name: path}, speed=1e6, duration_us=None, faults=[], seed=0, processes=[]
    )


@pytest.mark.parametrize(
    "path", sorted(p for p in EXAMPLES.iterdir() if p.suffix not in (".yaml", ".md")), ids=str
)
def test_each_file_that_is_drafted_can_be_rehearsed_or_says_why_not(
    path: Path, tmp_path: Path
) -> None:
    """Also by the declaration on its page, which has http for most JSON."""
    deployments = [load_deployment(EXAMPLES / f"{path.name.partition('.')[0]}.yaml")]
    if path.suffix in (".messages", ".mqtt") or "senml" in path.name:
        with pytest.raises(UsageError, match=r"is JSON, which is told|no header|is SenML"):
            drafted(path, tmp_path)
    else:
        deployments.append(drafted(path, tmp_path))
    for deployment in deployments:
        stream = only(deployment)
        why = None
        if stream.time.from_ is not None:
            why = "times of .*, which a file has not: .*slackwater send"
        elif stream.topic is not None or stream.mqtt is not None:
            why = "in a copy of the file leave out its `(topic|mqtt)`, and give a file"
        elif "senml" in path.name:
            why = "is SenML, which is read only if posted"
        if why is not None:
            with pytest.raises(DeploymentError, match=why):
                planned(deployment, path)
            continue
        plan = planned(deployment, path)
        sent = plan.inputs[stream.name]
        pieces = list(open_readings(stream, path).pieces())
        times = np.concatenate([piece.arrived.stimes for piece in pieces])
        assert times.tolist() == [reading.stime for reading in sent.readings] != []
        assert sum(len(piece.malformed) for piece in pieces) == sent.malformed
        assert any(plan.expected()[0].values())


def test_json_is_told_by_its_name(tmp_path: Path) -> None:
    for name, text, why in (
        ("a.txt", '{"t": 1700000000, "v": 1}', r"call the file a\.txt\.ndjson"),
        ("a.json", '{\n "t": 1700000000,\n "v": 1\n}', "no line of it is JSON: .*jq -c"),
        ("a.json", '{"t": [1700000000, 1700000001], "v": [1, 2]}', "slackwater init TOPIC"),
        ("a.json", '[{"v": 1}]\n[{"v": 2}]', "goes on behind the end of its array"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(SlackwaterError, match=why):
            drafted(tmp_path / name, tmp_path)


def test_a_long_array_is_drafted_from_its_beginning(tmp_path: Path) -> None:
    rows = [{"t": 1_700_000_000 + i, "v": i, "pad": "x" * 90} for i in range(20_000)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(rows, indent=1))
    assert path.stat().st_size > 2 * 1024 * 1024
    assert only(drafted(path, tmp_path)).time.field == "t"
    assert "# " + f"{path}: 20,000 readings of" in (tmp_path / "drafted.yaml").read_text()


def test_a_draft_is_printed_and_each_guess_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "Hall 3.csv").write_text("node;when;t\na;02.01.2026 10:00:00;1,5\n")
    done = RUN.invoke(app, ["init", str(tmp_path / "Hall 3.csv")])

    assert done.exit_code == 0, done.output
    stream = only(parse_deployment(done.output, "x").deployment)
    assert stream.name == "hall-3"
    for line in done.output.splitlines():
        declares = line.strip().partition(":")[0]
        if declares in {"key", "csv", "missing", "disorder", "window", "bound"}:
            assert "  # " in line, line
    assert "no offset, read as UTC: add zone: Area/City" in done.output.replace("\n    # ", " ")
    assert 'or is it "%m.%d.%Y' not in done.output


def test_a_file_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "rooms.yaml"
    output.write_text("mine")
    done = RUN.invoke(app, ["init", str(EXAMPLES / "epoch-floats.csv"), "-o", str(output)])

    assert isinstance(done.exception, UsageError)
    assert "exists already, and is not overwritten" in str(done.exception)
    assert output.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.csv", "", "a.csv: is empty"),
        ("a.csv", "temp\ufffdrature,ts\n20,1458031648545\n", "its header is not UTF-8: convert it"),
        ("a.csv", "only one column\n1\n2\n", "no header"),
        ("a.csv", "x,y\n", "no header"),
        ("a.csv", "name,value\na,1\nb,2\n", "none of its columns is a time: name, value"),
        ("a.csv", "ts,state\n1700000000,calm\n1700000001,windy\n", "has numbers to aggregate"),
        ("a.json", "{", "no line of it is JSON"),
        ("a.json", "[1, 2]", "has no object of JSON"),
        ("a.json", '[{"bn": "x", "n": "y", "v": 1}]', "SenML"),
        ("a.csv", "\0\0\0", "UTF-16"),
        ("a.csv", "ts,v\n1,2\n\0\n", "is no text"),
    ],
)
def test_what_cannot_be_guessed_is_one_sentence(
    name: str, content: str, why: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    done = RUN.invoke(app, ["init", str(tmp_path / name)])

    assert done.exit_code != 0
    assert why in str(done.exception)
    assert "\n" not in str(done.exception)


def test_a_path_without_a_file_is_no_topic(tmp_path: Path) -> None:
    for source in ("monday.csv", str(tmp_path / "monday"), "monday.csv.gz"):
        done = RUN.invoke(app, ["init", source])
        assert "there is no such file" in str(done.exception)


def test_a_topic_needs_a_broker(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = RUN.invoke(app, ["init", "lab-readings", "--bootstrap", address])
    assert address in str(done.exception)


# Times and columns.


def of_csv(text: str) -> Any:
    return draft_stream(csv_sample("x", "x.csv", text))


@pytest.mark.parametrize(
    ("written", "unit", "format_"),
    [
        ("1700000000", "s", None),
        ("1700000000.25", "s", None),
        ("1700000000123", "ms", None),
        ("1700000000123456", "us", None),
        ("1700000000123456789", "ns", None),
        ("2026-07-01T10:00:00Z", "iso", None),
        ("2026-07-01 10:00:00.5", "iso", None),
        ("2026-07-01T10:00:00+02:00", "iso", None),
        ("31/12/2026 10:00", None, "%d/%m/%Y %H:%M"),
        ("12/31/2026 10:00", None, "%m/%d/%Y %H:%M"),
        ("1/2/26 9:05 PM", None, "%m/%d/%y %I:%M %p"),
        ("31.12.2026 10:00:00", None, "%d.%m.%Y %H:%M:%S"),
        ("20261231100000", None, "%Y%m%d%H%M%S"),
        ("202612311000", None, "%Y%m%d%H%M"),
        ("2026123110", None, "%Y%m%d%H"),
        ("31 Dec 2026 10:00:00", None, "%d %b %Y %H:%M:%S"),
        ("2026-07-01 10:00:00 UTC", None, "%Y-%m-%d %H:%M:%S UTC"),
        ("2026/07/01 10:00:00 +0100", None, "%Y/%m/%d %H:%M:%S %z"),
    ],
)
def test_a_time_is_found_in_its_unit_or_format(
    written: str, unit: str | None, format_: str | None
) -> None:
    draft = of_csv(f"value,ts\n1,{written}\n2,{written}\n")
    assert (draft.time.spec.unit, draft.time.spec.format) == (unit, format_)


def test_day_and_month_are_told_by_the_order_of_the_readings() -> None:
    in_days = "".join(f"{day:02d}/01/2026 00:00,1\n" for day in range(1, 12))
    in_months = "".join(f"01/{day:02d}/2026 00:00,1\n" for day in range(1, 12))
    days, months = of_csv(f"t,v\n{in_days}"), of_csv(f"t,v\n{in_months}")

    assert days.time.spec.format == "%d/%m/%Y %H:%M"
    assert months.time.spec.format == "%m/%d/%Y %H:%M"
    assert days.time.other == "%m/%d/%Y %H:%M"


@pytest.mark.parametrize(
    ("written", "format_"),
    [
        ("25.10.2026 01:55:00,000", "%d.%m.%Y %H:%M:%S,%f"),
        ("2026-10-25 01:55:00,123", "iso"),
        ("2026/10/25 01:55:00,123", "%Y/%m/%d %H:%M:%S,%f"),
        ("25/10/2026 01:55", "%d/%m/%Y %H:%M"),
        ("10/25/2026 1:55 PM", "%m/%d/%Y %I:%M %p"),
        ("25/10/2026 1:55 PM", "%d/%m/%Y %I:%M %p"),
        ("25.10.2026 01.55.00,5", "%d.%m.%Y %H.%M.%S,%f"),
    ],
)
@pytest.mark.parametrize("kind", ["quoted", "semicolon", "json"])
def test_the_proxy_and_the_judge_read_the_times_that_are_guessed(
    written: str, format_: str, kind: str, tmp_path: Path
) -> None:
    row = {"quoted": f'"{written}","21.5"', "semicolon": f"{written};21,5"}.get(kind)
    text = {"quoted": f"t,v\n{row}\n{row}\n", "semicolon": f"t;v\n{row}\n{row}\n"}.get(kind)
    one = json.dumps({"t": written, "v": 21.5})
    path = tmp_path / ("x.ndjson" if kind == "json" else "x.csv")
    path.write_text(f"{one}\n{one}\n" if text is None else text)
    spec = only(drafted(path, tmp_path))
    assert spec.time.format == (None if format_ == "iso" else format_)

    parsed = [piece.arrived.stimes.tolist() for piece in open_readings(spec, path).pieces()]
    judged = [reading.stime for reading in read_stream(spec, path).readings]
    clock = re.findall(r"\d+", written.replace(written[:10], ""))
    hour = int(clock[0]) + 12 * written.endswith("PM")
    fraction = f"{clock[3]:0<6}" if len(clock) > 3 else "0"
    at = datetime(2026, 10, 25, hour, int(clock[1]), tzinfo=UTC)
    us = round(at.timestamp()) * 1_000_000 + int(fraction)
    assert [*parsed[0]] == judged == [us, us]


def test_one_number_above_twelve_decides_which_is_the_month() -> None:
    same = "05/06/2026 00:00,1\n"
    last = {"%d/%m/%Y %H:%M": "13/06/2026 00:00,1\n", "%m/%d/%Y %H:%M": "05/13/2026 00:00,1\n"}
    for format_, row in last.items():
        draft = of_csv(f"t,v\n{same * 19}{row}")
        assert (draft.time.spec.format, draft.time.other) == (format_, None)
    undecided = of_csv(f"t,v\n{same * 20}")
    assert {undecided.time.spec.format, undecided.time.other} == set(last)
    text = deployment_text([MeasuredStream(undecided)], "slackwater init x.csv")
    assert 'or is it "%m/%d/%Y %H:%M"? No reading tells day and month apart' in text


def test_a_counter_in_the_range_of_seconds_is_no_time_beside_one() -> None:
    draft = of_csv("energy,at\n1700000000,2026-07-01T10:00:00Z\n1700000009,2026-07-01T10:00:05Z\n")
    assert draft.time.columns == ("at",)
    assert list(draft.fields) == ["energy"]


def test_a_text_that_tells_readings_of_one_time_from_each_other_is_the_key() -> None:
    rows = "".join(f"{1_700_000_000 + i},{w},{i}\n" for i in range(9) for w in ("Nord", "Süd"))
    assert of_csv(f"t,seite,v\n{rows}").key == "seite"
    alone = "".join(f"{1_700_000_000 + i},{'NW'[i % 2]},{i}\n" for i in range(9))
    draft = of_csv(f"t,wind,v\n{alone}")
    assert draft.key is None
    text = deployment_text([MeasuredStream(draft)], "slackwater init x.csv")
    assert "# one device; or does wind name it?" in text


def test_a_number_far_from_all_others_stands_for_nothing() -> None:
    rows = "".join(f"{1_700_000_000 + i},{20 + i / 10},{-i}\n" for i in range(9))
    draft = of_csv(f"t,temp,depth\n{rows}1700000009,-999,-200\n1700000010,21,-9\n")
    assert draft.missing == [-999.0, -200.0]
    near = "".join(f"{1_700_000_000 + i},{-300 + 50 * i}\n" for i in range(9))
    assert of_csv(f"t,v\n{near}").missing == []


@given(st.text(min_size=1, max_size=60), st.lists(st.sampled_from(["a", "b_2"]), max_size=2))
def test_a_field_has_a_name_that_needs_no_quotes(source: str, taken: list[str]) -> None:
    name = field_name(source, taken)
    assert name.isidentifier()
    assert name not in taken


@example("NULL.csv")
@example("null")
@given(st.text(max_size=80))
def test_a_stream_has_a_valid_name(text: str) -> None:
    columns = "t,v\n1700000000,1\n1700000001,2\n"
    sample = csv_sample(stream_name(text), "x.csv", columns)
    written = deployment_text([MeasuredStream(draft_stream(sample))], "slackwater init x.csv")
    assert parse_deployment(written, "x").deployment.streams


@given(
    st.lists(
        st.text(st.characters(exclude_characters='\r\n",', exclude_categories=["Cs"]), min_size=1),
        min_size=1,
        max_size=4,
        unique_by=str.strip,
    )
)
def test_any_heading_is_declared_as_it_is_in_the_file(headings: list[str]) -> None:
    headings = [each.strip() for each in headings if each.strip() and not each[0].isdigit()]
    text = f"when,{','.join(f'h{each}' for each in headings)}\n"
    text += "".join(
        f"2026-07-01T00:00:0{i}Z,{','.join('1.5' for _ in headings)}\n" for i in range(3)
    )
    if not headings or not text.splitlines()[1].startswith("2026"):
        return
    draft = draft_stream(csv_sample("x", "x.csv", text))
    written = deployment_text([MeasuredStream(draft)], "slackwater init x.csv")
    stream = only(parse_deployment(written, "x").deployment)
    assert {field.source for field in stream.fields} == set(draft.fields.values())


@given(st.text(max_size=20))
def test_a_scalar_of_yaml_is_the_same_text(text: str) -> None:
    yaml = "apiVersion: slackwater/v1\nstreams:\n  a: {key: {value: %s}, time: {column: t, unit: s}"
    yaml += ", fields: [x]}\nqueries:\n  q: {from: [a], bound: 2s}\n"
    if text and text == text.strip():
        assert only(parse_deployment(yaml % scalar(text), "x").deployment).key.value == text


# Measures.


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 2)), min_size=1, max_size=40))
def test_measures_are_those_of_a_slow_count(rows: list[tuple[int, int]]) -> None:
    times, keys = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    found = measure(times, keys)
    behind = [max(t for t, _ in rows[: i + 1]) - rows[i][0] for i in range(len(rows))]
    gaps = sorted(
        b - a
        for key in {key for _, key in rows}
        for a, b in zip(*_shifted(sorted(t for t, k in rows if k == key)), strict=True)
        if b > a
    )

    assert found.behind_us == max(behind)
    assert found.later_than(1_000) == sum(1 for each in behind if each > 1_000)
    assert found.gap_us == (int(np.median(gaps)) if gaps else None)
    assert nice(found.behind_us) >= found.behind_us


def _shifted(times: list[int]) -> tuple[list[int], list[int]]:
    return times[:-1], times[1:]


# Messages of a topic.


def records(*values: bytes, key: bytes | None = None) -> list[RawRecord]:
    return [RawRecord("lab", 0, i, 1_700_000_000_000 + i, key, v) for i, v in enumerate(values)]


def of_topic(some: list[RawRecord]) -> StreamSpec:
    draft = draft_stream(sample_of(some, "lab", "lab"))
    text = deployment_text([MeasuredStream(draft)], "slackwater init lab")
    return only(parse_deployment(text, "x").deployment)


def test_messages_of_json_are_a_topic() -> None:
    message = {"mote": "m7", "at": 1_700_000_000_000, "env": {"t": 1.5}}
    spec = of_topic(records(*[json.dumps(message).encode()] * 3))
    assert spec.topic is not None
    assert (spec.topic.name, spec.topic.format) == ("lab", "json")
    assert (spec.key.field, spec.time.field, spec.time.unit) == ("mote", "at", "ms")
    assert [(field.name, field.source) for field in spec.fields] == [("env_t", "env.t")]
    assert spec.learns_gaps


def test_messages_with_another_unit_are_counted_and_measured_by_no_one() -> None:
    times = [*(1_700_000_000_000 + 1_000 * i for i in range(40)), 1_700_000_000]
    some = [{"mote": "m7", "at": at, "t": 1.5} for at in times]
    draft = draft_stream(sample_of(records(*(json.dumps(one).encode() for one in some)), "a", "a"))
    found = measure_texts(parsed_times(draft), keys_of_sample(draft))
    assert found is not None
    assert (found.count, found.refused, found.behind_us, found.gap_us) == (40, 1, 0, 1_000_000)


@pytest.mark.parametrize("name", ["meter-columns", "modbus-gateway"])
def test_messages_of_many_readings_are_declared_as_their_page_does(name: str) -> None:
    lines = (EXAMPLES / f"{name}.messages").read_bytes().splitlines()
    found, by_hand = of_topic(records(*lines)), declared(EXAMPLES / f"{name}.yaml")

    assert found.topic is not None
    assert by_hand.topic is not None
    assert found.topic.format == by_hand.topic.format
    assert (found.key.field, found.time) == (by_hand.key.field, by_hand.time)


def test_a_record_gives_what_a_message_lacks() -> None:
    spec = of_topic(records(b"21.5", b"22", key=b"hall"))
    assert spec.topic is not None
    assert spec.topic.format == "number"
    assert (spec.key.from_, spec.time.from_) == ("record", "record")
    framed = of_topic(records(b'\0\0\0\0\x07{"id": "a", "t": 1.5}'))
    assert (framed.key.field, framed.time.from_) == ("id", "record")


def test_messages_of_avro_are_named() -> None:
    with pytest.raises(UsageError, match="look like Avro"):
        sample_of(records(b"\0\0\0\0\x07\x02a"), "lab", "lab")


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"ts,v\n" + b"1700000000,1\n" * 1000)[:-20])
    done = RUN.invoke(app, ["init", str(path)])
    assert "is damaged" in str(done.exception)
