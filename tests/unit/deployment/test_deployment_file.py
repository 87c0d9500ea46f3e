"""The deployment file: valid content is converted, errors are reported with their place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.deployment import zones
from slackwater.deployment.children import planned
from slackwater.deployment.parse import (
    CheckedDeployment,
    check_deployment,
    load_deployment,
    parse_deployment,
)
from slackwater.deployment.stored import read_stored, to_text
from slackwater.model.deployment import (
    CsvSpec,
    FieldSpec,
    HttpInputSpec,
    HttpListenSpec,
    JoinSpec,
    KeySpec,
    RegistrySpec,
    TimeSpec,
    TopicSpec,
    WindowSpec,
)
from slackwater.model.errors import DeploymentError

FULL = """\
apiVersion: slackwater/v1
clock: wall
streams:
  room-1: {key: {column: node}, time: {column: ts, unit: ms}, fields: [temperature, humidity]}
  road:
    key: {value: 007}
    time: {columns: [Date, Time], format: "%d/%m/%Y %H.%M.%S"}
    csv: {delimiter: ";", decimal: ","}
    fields: {co: "CO(GT)", temperature: T}
    disorder: 1.5s
  lab:
    topic: {name: lab-readings, format: json, from: end, proxies: 2, partitions: fixed}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    expect_every: 5s
queries:
  climate:
    from: [lab, room-1]
    where: temperature > -40 and key <> 'x'
    select: {fahrenheit: temperature * 1.8 + 32}
    window: {size: 1s, slide: 250ms}
    aggregate: [count, avg, stddev]
    bound: 2s
    margin: 60ms
    policy: {failure: process}
    replicas: 3
    children: 2
    parts: 4
    copies: 2
    mergers: 3
    results: {format: json}
  plain:
    from: [road]
    window: {size: 1m}
    aggregate: [max]
    bound: 1s
"""

SMALL = """\
apiVersion: slackwater/v1
streams:
  s:
    key: {column: k}
    time: {column: t, unit: s}
    fields: [a, b]
    disorder: 1s
queries:
  q:
    from: [s]
    window: {size: 1s}
    aggregate: [count]
    bound: 2s
"""


def parse(text: str, *, micro_batch: bool = False) -> CheckedDeployment:
    return parse_deployment(text, "f.yaml", micro_batch=micro_batch)


def errors(text: str) -> list[str]:
    with pytest.raises(DeploymentError) as error:
        parse(text)
    assert error.value.exit_code == 2
    return str(error.value).split("\n")


def changed(old: str, new: str) -> str:
    assert SMALL.count(old) == 1, f"{old!r} is not once in the text"
    return SMALL.replace(old, new)


def test_everything_that_can_be_said() -> None:
    d = parse(FULL).deployment
    assert (d.clock, list(d.streams), list(d.queries)) == (
        "wall",
        ["room-1", "road", "lab"],
        ["climate", "plain"],
    )
    road, lab, climate = d.streams["road"], d.streams["lab"], d.queries["climate"]
    assert road.key == KeySpec(value="007")
    assert road.time == TimeSpec(("Date", "Time"), format="%d/%m/%Y %H.%M.%S")
    assert road.csv == CsvSpec(";", ",")
    assert road.fields == (FieldSpec("co", "CO(GT)"), FieldSpec("temperature", "T"))
    assert (road.disorder_us, road.expect_every_us) == (1_500_000, None)
    assert lab.topic == TopicSpec("lab-readings", "json", "end", proxies=2, partitions="fixed")
    assert (lab.key, lab.time) == (KeySpec(field="mote"), TimeSpec(field="at", unit="us"))
    assert lab.expect_every_us == 5_000_000
    assert climate.sources == ("lab", "room-1")
    assert climate.window == WindowSpec(1_000_000, 250_000)
    assert climate.select == (("fahrenheit", "temperature * 1.8 + 32"),)
    assert climate.aggregate == ("count", "avg", "stddev")
    assert (climate.bound_us, climate.margin_us) == (2_000_000, 60_000)
    assert (climate.replicas, climate.children, climate.parts, climate.copies) == (3, 2, 4, 2)
    assert climate.mergers == 3
    assert planned(d, climate).streams_of(1) == ("room-1",)


def test_defaults() -> None:
    d = parse(SMALL).deployment
    q, s = d.queries["q"], d.streams["s"]
    assert d.clock == "wall"
    assert (s.csv, s.topic, s.expect_every_us) == (CsvSpec(), None, None)
    assert q.window == WindowSpec(1_000_000, 1_000_000)
    assert (q.where, q.select, q.margin_us) == (None, None, 50_000)
    assert (q.failure_policy, q.stabilization_policy, q.results_format) == (
        *("process", "process"),
        "json",
    )
    assert (q.replicas, q.children, q.parts, q.copies) == (2, 1, 1, 2)
    assert q.mergers == 0
    assert parse(SMALL, micro_batch=True).deployment.queries["q"].margin_us == 150_000


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("slackwater/v1", "slackwater/v9", "1: apiVersion: must be 'slackwater/v1'"),
        ("streams:", "clok: wall\nstreams:", "2: clok: unknown field; did you mean 'clock'?"),
        ("streams:", "clock: lunar\nstreams:", "2: clock: must be 'wall' or 'data', not 'lunar'"),
        ("  s:\n", "  S:\n", "3: streams.S: 'S' is not a valid name"),
        ("  s:\n", f"  {'s' * 64}:\n", "at most 63 characters"),
        ("{column: k}", "{colum: k}", "4: streams.s.key.colum: unknown field; did you mean"),
        ("{column: k}", "{column: k, value: v}", "4: streams.s.key: takes exactly one of"),
        (
            "{column: k}",
            "{}",
            "4: streams.s.key: takes exactly one of column, columns",
        ),
        ("{column: k}", "{value: ''}", "4: streams.s.key.value: must not be empty"),
        ("{column: k}", "k", "4: streams.s.key: must be a mapping"),
        ("{column: k}", "{field: k}", "4: streams.s.key: a file has columns (CSV) or fields"),
        ("unit: s}", "unit: h}", "5: streams.s.time.unit: must be 's', 'ms', 'us', 'ns' or 'iso'"),
        ("unit: s}", "unit: ns, zone: UTC}", "5: streams.s.time.zone: is for local times, which"),
        (", unit: s}", "}", "5: streams.s.time: takes exactly one of unit or format, has none"),
        ("column: t,", "columns: [t, u],", "5: streams.s.time.unit: several joined columns"),
        ("unit: s}", "format: '%Q'}", "5: streams.s.time.format: '%Q' is not a strptime format"),
        ("unit: s}", "format: '%H:%M'}", "5: streams.s.time.format: '%H:%M' has no year"),
        (
            "unit: s}",
            "format: '%Y-%m-%d %H:%M %Z'}",
            "none has an offset (CET would be read as UTC); use '%Y-%m-%d %H:%M %z' if",
        ),
        ("unit: s}", "format: '%Y %Y'}", "5: streams.s.time.format: '%Y %Y' is not a strptime"),
        ("[a, b]", "[a, 1b]", "6: streams.s.fields.1b: '1b' is not a valid name of a field"),
        ("[a, b]", "[a, key]", "6: streams.s.fields.key: a field cannot be called key"),
        ("[a, b]", "[a, a]", "6: streams.s.fields: a is listed twice"),
        ("[a, b]", "[]", "6: streams.s.fields: must not be empty"),
        ("[a, b]", "a", "6: streams.s.fields: must be a mapping"),
        ("[a, b]", "{a: [b]}", "6: streams.s.fields.a: must be text"),
        ("disorder: 1s", "disorder: 1", "7: streams.s.disorder: '1' is not a duration"),
        ("disorder: 1s", "disorder: -1s", "7: streams.s.disorder: '-1s' is not a duration"),
        (
            "disorder: 1s",
            "disorder: 5s\n    ahead: 2s",
            "8: streams.s.ahead: is below disorder (5s)",
        ),
        ("disorder: 1s", "ahead: soon", "7: streams.s.ahead: 'soon' is not a duration"),
        ("disorder: 1s", "expect_every: 0s", "7: streams.s.expect_every: must be longer than 0"),
        ("disorder: 1s", "expect_every: never", "7: streams.s.expect_every: 'never' is not a"),
        ("disorder: 1s", "sporadic: perhaps", "7: streams.s.sporadic: must be true or false"),
        (
            "disorder: 1s",
            "expect_every: auto\n    sporadic: true",
            "8: streams.s.sporadic: takes expect_every or sporadic: true, not both",
        ),
        ("disorder: 1s", "csv: {delimiter: ab}", "7: streams.s.csv.delimiter:"),
        ("disorder: 1s", "csv: {delimiter: '.'}", "7: streams.s.csv.delimiter: '.' cannot"),
        ("disorder: 1s", 'csv: {delimiter: "\\0"}', "7: streams.s.csv.delimiter: '\\x00' cannot"),
        ("disorder: 1s", "csv: {delimiter: \u00a7}", "7: streams.s.csv.delimiter: '\u00a7' cannot"),
        ("disorder: 1s", "csv: {decimal: x}", "7: streams.s.csv.decimal: must be '.' or ','"),
        ("disorder: 1s", "topic: {name: x}", "7: streams.s.topic.format: is required"),
        (
            "disorder: 1s",
            "topic: {name: x, format: json, proxies: 65}",
            "7: streams.s.topic.proxies: ",
        ),
        (
            "disorder: 1s",
            "topic: {name: x, format: json, proxies: 0}",
            "7: streams.s.topic.proxies: ",
        ),
        (
            "disorder: 1s",
            "topic: {name: x, format: json, partitions: fix}",
            "7: streams.s.topic.partitions: must be 'watched' or 'fixed'",
        ),
        (
            "disorder: 1s",
            "topic: {name: x, format: json, partitions: 3}",
            "7: streams.s.topic.partitions: must be 'watched' or 'fixed'",
        ),
        ("disorder: 1s", "topic: {name: x, format: avro}", "7: streams.s.topic.format: avro needs"),
        (
            "disorder: 1s",
            "topic: {name: x, format: json, schemas: x}",
            "7: streams.s.topic.schemas: is for format: avro, not json",
        ),
        (
            "disorder: 1s",
            "topic: {name: x, format: avro, registry: 'file:///x'}",
            "7: streams.s.topic.registry: must be a URL",
        ),
        (
            "disorder: 1s",
            "topic: {name: x, format: avro, registry: 'https://a:b@c'}",
            "7: streams.s.topic.registry: put the credentials into a file",
        ),
        (
            "disorder: 1s",
            "topic: {name: x, format: avro, registry: {url: 'https://a', user: b}}",
            "7: streams.s.topic.registry.user: unknown field",
        ),
        ("disorder: 1s", "topic: {name: x, format: xml}", "7: streams.s.topic.format: must be"),
        (
            "disorder: 1s",
            "topic: {name: x, format: json}",
            "4: streams.s.key: messages have no columns",
        ),
        ("disorder: 1s", "topic: {name: sw.x, format: json}", "one of slackwater's own topics"),
        ("disorder: 1s", "topic: {name: 'a b', format: json}", "is not a valid topic name"),
        ("  q:\n", "  s:\n", "9: queries.s: a stream has the same name, 's'"),
        ("from: [s]", "from: [t]", "10: queries.q.from[0]: there is no stream or query 't'"),
        ("from: [s]", "from: [s, s]", "10: queries.q.from[1]: 's' is listed twice"),
        (
            "from: [s]",
            "from: [q]",
            "10: queries.q.from[0]: queries read each other in a cycle: q -> q",
        ),
        ("from: [s]", "from: []", "10: queries.q.from: must not be empty"),
        ("from: [s]", "from: s", "10: queries.q.from: must be a list"),
        ("size: 1s", "size: 0s", "11: queries.q.window.size: must be longer than 0"),
        ("size: 1s", "size: 1s, slide: 2s", "11: queries.q.window.slide: 2s is larger than size"),
        ("    window: {size: 1s}\n", "", "11: queries.q.aggregate: needs a window: without one"),
        ("    aggregate: [count]\n", "", "9: queries.q.aggregate: is required with a window"),
        ("[count]", "[count, median]", "12: queries.q.aggregate[1]: must be 'count', 'sum'"),
        ("[count]", "[count, count]", "12: queries.q.aggregate: lists an aggregate twice"),
        ("[count]", "[]", "12: queries.q.aggregate: is required with a window"),
        ("    bound: 2s\n", "", "9: queries.q.bound: is required"),
        ("bound: 2s", "bound: 99ms", "13: queries.q.bound: 99ms cannot be kept: 2 stages with"),
        ("bound: 2s", "bound: 2s\n    margin: 2s", "13: queries.q.bound: 2s cannot be kept"),
        ("bound: 2s", "bound: 2s\n    replicas: 0", "14: queries.q.replicas: 0 is out of range"),
        ("bound: 2s", "bound: 2s\n    parts: 1.5", "14: queries.q.parts: '1.5' is not a whole"),
        ("bound: 2s", "bound: 2s\n    copies: 3", "14: queries.q.copies: 3 is out of range"),
        ("bound: 2s", "bound: 2s\n    copies: 2\nclock: data", "14: queries.q.copies: 2 needs"),
        ("bound: 2s", "bound: 2s\n    mergers: -1", "14: queries.q.mergers: -1 is out of range"),
        ("bound: 2s", "bound: 2s\n    mergers: 27", "14: queries.q.mergers: 27 is out of range"),
        ("bound: 2s", "bound: 2s\n    mergers: two", "14: queries.q.mergers:"),
        ("bound: 2s", "bound: 2s\n    mergers: 2\nclock: data", "14: queries.q.mergers: 2 need"),
        (
            "bound: 2s",
            "bound: 2s\n    children: 2",
            "14: queries.q.children: 2 children, but only 1 logs for them",
        ),
        ("bound: 2s", "bound: 2s\n    children: 1.5", "14: queries.q.children: '1.5' is not a"),
        ("bound: 2s", "bound: 2s\n    children: 1025", "14: queries.q.children: 1025 is out of"),
        ("bound: 2s", "bound: 2s\n    children: {}", "14: queries.q.children: must not be empty"),
        ("bound: 2s", "bound: 2s\n    children: sites", "14: queries.q.children: needs a site of"),
        (
            "bound: 2s",
            "bound: 2s\n    children:\n      a: [s]\n      b: [s]",
            "16: queries.q.children.b[0]: s is also in a",
        ),
        (
            "bound: 2s",
            "bound: 2s\n    children: {a: [s], a: [s]}",
            "14: 'a' is defined twice, first in line 14",
        ),
        (
            "bound: 2s",
            "bound: 2s\n    children:\n      a: [t]",
            "15: queries.q.children.a[0]: 't' is not in from",
        ),
        (
            "bound: 2s",
            "bound: 2s\n    children:\n      a: s",
            "15: queries.q.children.a: must be a list",
        ),
        (
            "bound: 2s",
            "bound: 2s\n    children:\n      a: [s/1]",
            "15: queries.q.children.a[0]: there is no s/1: s has 1 log",
        ),
        ("bound: 2s", "bound: 2s\n    policy: {failure: suspend}", "14: queries.q.policy.failure:"),
        ("bound: 2s", "bound: 2s\n    results: {format: avro}", "14: queries.q.results.format:"),
        ("bound: 2s", "bound: 2s\n    where: c > 1", "14: queries.q.where: 'c > 1': there is no"),
        ("bound: 2s", "bound: 2s\n    where: a +", "14: queries.q.where: 'a +': is not an SQL"),
        (
            "bound: 2s",
            "bound: 2s\n    select:\n      x: a\n      y: a > 1",
            "16: queries.q.select.y:",
        ),
        (
            "bound: 2s",
            "bound: 2s\n    select: {key: a}",
            "14: queries.q.select.key: a field cannot",
        ),
        ("bound: 2s", "bound: 2s\n    bound: 3s", "14: 'bound' is defined twice, first in"),
    ],
)
def test_errors_are_reported_with_their_place(old: str, new: str, reported: str) -> None:
    found = errors(changed(old, new))
    assert all(message.startswith("f.yaml:") for message in found)
    assert any(reported in message for message in found), found


def test_one_mistake_gives_one_message() -> None:
    for old, new in [("{column: k}", "{colum: k}"), ("bound: 2s", "bund: 2s"), ("[s]", "[t]")]:
        found = errors(changed(old, new))
        # The misspelt field is unknown, and the correct one missing: no other errors.
        assert len(found) <= 2, found


def test_errors_of_form_hide_no_other_errors_and_cause_no_false_ones() -> None:
    text = """\
apiVersion: slackwater/v1
streams:
  a:
    {key: {column: k}, time: {column: t, unit: mss}, fields: [x], expect_every: 5s, sporadic: true}
  b: {topic: {name: b, formt: json}, key: {field: k}, time: {field: t, unit: ms}, fields: [x]}
  c: {key: {column: k}, time: {column: t, unit: ms}, fields: [y], disorder: 1}
  d: {http: {}, key: {field: k}, time: {field: t, unit: ms}, fields: [y], sporadic: perhaps}
queries:
  q1: {from: [a, nope], window: {size: 1m, slide: 7x}, aggregate: [cout], bound: 2s}
  q2: {from: [c], where: z > 1, select: {u: y + v}, window: {size: 1m}, aggregate: [avg], bund: 2s}
  q3: {from: [c], window: {siz: 1m}, aggregate: [avg], bound: 10ms}
  q4: {from: [c, d], join: {left: c}, where: left_y > 1, bound: 2s}
"""
    assert [error.partition(": ")[2].partition(": ")[0] for error in errors(text)] == [
        "streams.a.sporadic",
        "streams.a.time.unit",
        "streams.b.topic.format",
        "streams.b.topic.formt",
        "streams.c.disorder",
        "streams.d.sporadic",
        "queries.q1.aggregate[0]",
        "queries.q1.from[1]",
        "queries.q1.window.slide",
        "queries.q2.bound",
        "queries.q2.bund",
        "queries.q2.select.u",
        "queries.q2.where",
        "queries.q3.bound",
        "queries.q3.window.siz",
        "queries.q3.window.size",
        "queries.q4.join.right",
        "queries.q4.join.within",
    ]


@pytest.mark.parametrize(
    ("query", "reported"),
    [
        ("from: [rod], where: temprature > 1", ["from[0]", "where"]),
        ("from: [rod], where: x >", ["from[0]", "where"]),
        ("from: [rod], select: {u: y + v}", ["from[0]", "select.u"]),
        ("from: rod, where: v > 1", ["from", "where"]),
        ("from: [rod, a], join: {left: rod, right: a, within: 1s}, where: y > 1", ["from[0]", "w"]),
        # A text of another stream, or a name on either side, may be right once `from` is.
        ("from: [rod], where: state = 'on' AND x > 1", ["from[0]"]),
        ("from: [rod, a], join: {left: rod, right: a, within: 1s}, where: right_x>1", ["from[0]"]),
    ],
)
def test_expressions_are_checked_beside_an_invalid_source(query: str, reported: list[str]) -> None:
    stream = "{key: {column: k}, time: {column: t, unit: ms}, fields: [%s]%s}"
    text = "apiVersion: slackwater/v1\nstreams:\n"
    text += f"  a: {stream % ('x', ', disorder: 1s')}\n"
    text += f"  road: {stream % ('y', ', texts: [state]')}\n"
    text += f"queries:\n  q: {{{query}, bound: 2s}}\n"
    found = [error.partition("queries.q.")[2].partition(": ")[0] for error in errors(text)]
    assert len(found) == len(reported)
    assert all(place.startswith(start) for place, start in zip(found, reported, strict=True)), found


def test_names_are_not_checked_while_other_parts_are_invalid() -> None:
    text = """\
apiVersion: slackwater/v1
streams:
  a: {key: {column: k}, time: {column: t, unit: ms}, fields: 3}
queries:
  q: {from: [b], where: '"any name" > 1 AND other = 2', select: {u: x +}, bound: 2s}
"""
    assert [error.partition(": ")[2].partition(": ")[0] for error in errors(text)] == [
        "streams.a.fields",
        "queries.q.from[0]",
        "queries.q.select.u",
    ]


def test_all_errors_are_reported_together_in_the_order_of_the_file() -> None:
    text = FULL.replace("unit: ms", "unit: h").replace("[Date, Time]", "[]")
    text = text.replace("bound: 2s", "bound: 2x").replace("[road]", "[rod]").replace("v1", "v2")
    found = errors(text)
    lines = [int(message.split(":")[1]) for message in found]
    assert lines == sorted(lines) == [1, 4, 7, 24, 34]
    assert "did you mean 'road'" in found[-1]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "1: is empty"),
        ("# nothing\n", "1: is empty"),
        ("[1, 2]", "1: must be a mapping"),
        ("streams: [\nqueries: x\n", "not YAML: expected"),
        ("a: 1\nb: !!python/object/apply:os.system [id]\n", "2: b: unknown field"),
        ("a: !boom x\n", "1: the tag !boom is not supported"),
        ("a: 1\n---\nb: 2\n", "not YAML"),
        ("a: &x [*x]\n", "more than 200000 nodes or 20 levels"),
        ("<<: {a: 1}\n", "1: only a name is allowed before a colon"),
        ("? [a]\n: 1\n", "1: only a name is allowed before a colon"),
        ("a: 1\nb: \x00\n", "2: not YAML"),
        ("[" * 500, "not YAML"),
    ],
)
def test_what_is_not_even_a_mapping(text: str, reported: str) -> None:
    assert any(reported in message for message in errors(text))


@pytest.mark.parametrize(
    ("written", "ahead_s"),
    [
        ("disorder: 1s", 60),
        ("disorder: 5m", 300),
        ("ahead: 0s\n    disorder: 1s", 0),
        ("ahead: 1s\n    disorder: 1s", 1),
        ("ahead: 1h", 3_600),
    ],
)
def test_how_far_a_reading_may_be_ahead(written: str, ahead_s: int) -> None:
    (stream,) = parse(changed("disorder: 1s", written)).deployment.streams.values()
    assert stream.ahead_us == ahead_s * 1_000_000


def test_with_the_clock_of_the_data_there_is_nothing_to_be_ahead_of() -> None:
    (error,) = errors(changed("disorder: 1s", "ahead: 1s") + "clock: data\n")
    assert error.startswith("f.yaml:7: streams.s.ahead: is compared with the clock of the proxy: ")


def test_aliases_that_unfold_to_millions_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert any(
        "more than 200000 nodes or 20 levels" in message for message in errors("\n".join(lines))
    )


@given(st.text(max_size=60), st.integers(0, len(SMALL)))
def test_any_text_is_a_deployment_or_an_error(noise: str, at: int) -> None:
    try:
        parse(SMALL[:at] + noise + SMALL[at:])
    except DeploymentError as error:
        reported = str(error)
    else:
        return
    assert reported.startswith("f.yaml:")


def test_schemas_and_credentials_are_beside_the_deployment_file(tmp_path: Path) -> None:
    registry = "{url: 'http://r:1', credentials: p}"
    topic = f"{{name: x, format: avro, schemas: lab/s, registry: {registry}}}"
    text = FED.replace("{name: lab-readings, format: json}", topic).replace(
        "time:", "sporadic: true\n    time:"
    )
    given = parse_deployment(text, str(tmp_path / "d.yaml")).deployment.streams["lab"].topic
    assert given is not None
    assert given.schemas == str(tmp_path / "lab/s")
    assert given.registry == RegistrySpec("http://r:1", str(tmp_path / "p"))


def test_a_live_stream_without_any_patience_is_warned_of() -> None:
    impatient = changed("disorder: 1s", "disorder: 99ms")
    assert [w for w in parse(impatient).warnings if "f.yaml:3: streams.s:" in w]
    assert parse(changed("disorder: 1s", "expect_every: 1s")).warnings == ()
    assert parse(impatient.replace("streams:", "clock: data\nstreams:")).warnings == ()
    assert parse(SMALL).warnings == ()


FED = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    disorder: 1s
queries:
  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 2s}
"""


POSTED = """\
apiVersion: slackwater/v1
http: {listen: "127.0.0.1:9000"}
streams:
  lab:
    http: {token_file: lab.tokens}
    key: {field: mote}
    time: {field: at, unit: us}
    fields: [temperature]
    expect_every: 5s
queries:
  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 2s}
"""
BY_RECORD = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {from: record}
    time: {from: record}
    fields: [temperature]
    expect_every: 5s
queries:
  q: {from: [lab], window: {size: 1s}, aggregate: [count], bound: 2s}
"""
BY_ARRIVAL = POSTED.replace("field: at, unit: us", "from: arrival")
MQTT_BY_ARRIVAL = BY_ARRIVAL.replace(
    "http: {token_file: lab.tokens}", "mqtt: {broker: h, topics: [l/+]}"
)


JOINED = """\
apiVersion: slackwater/v1
streams:
  room:
    key: {columns: [site, sensor], join: "-"}
    time: {columns: [date, clock], join: "T", format: "%Y-%m-%dT%H:%M"}
    fields: [temperature]
  lab:
    topic: {name: lab-readings, format: json}
    key: {fields: [site, meta.sensor]}
    time: {fields: [date, clock], unit: iso}
    fields: [temperature]
    expect_every: 5s
  home:
    mqtt: {broker: h, topics: [home/+/+/+]}
    key: {levels: [2, 4]}
    time: {from: arrival}
    fields: [temperature]
    expect_every: 5s
  posted:
    http: {}
    key: {fields: [site, sensor]}
    time: {fields: [date, clock], join: "", format: "%Y%m%d%H%M"}
    fields: [temperature]
    expect_every: 5s
queries:
  q: {from: [room, lab, home, posted], window: {size: 1s}, aggregate: [count], bound: 2s}
"""


def test_keys_and_times_of_several_parts(tmp_path: Path) -> None:
    d = parse(JOINED).deployment
    room, lab, home, posted = (d.streams[name] for name in ("room", "lab", "home", "posted"))
    assert room.key == KeySpec(columns=("site", "sensor"), join="-")
    assert room.time == TimeSpec(("date", "clock"), format="%Y-%m-%dT%H:%M", join="T")
    assert lab.key == KeySpec(fields=("site", "meta.sensor"), join="/")
    assert lab.time == TimeSpec(fields=("date", "clock"), unit="iso", join=" ")
    assert home.key == KeySpec(levels=(2, 4), join="/")
    assert posted.key == KeySpec(columns=("site", "sensor"))
    assert posted.time == TimeSpec(("date", "clock"), format="%Y%m%d%H%M", join="")
    stored = tmp_path / "d.recorded"
    stored.write_text(to_text(d))
    assert read_stored(stored).streams == d.streams


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("[site, sensor], join: '-'", "[site]", "4: streams.room.key.columns: has 1 parts: from 2"),
        ("[site, sensor], join: '-'", "[a, a]", "4: streams.room.key.columns: a is listed twice"),
        (
            "[site, sensor], join: '-'",
            "site",
            "4: streams.room.key.columns: must be a list, [a, b]",
        ),
        ("join: '-'", "join: ''", "4: streams.room.key.join: must not be empty"),
        ("join: '-'", "join: ----------------+", "4: streams.room.key.join: has 17 characters, at"),
        (
            "join: '-'",
            "column: a",
            "4: streams.room.key: takes exactly one of column, columns, fie",
        ),
        (
            "columns: [site, sensor], join: '-'",
            "column: a, join: x",
            "4: streams.room.key.join: st",
        ),
        (
            "columns: [site, sensor], join: '-'",
            "fields: [a, b]",
            "4: streams.room.key: a file has columns",
        ),
        (
            "columns: [site, sensor], join: '-'",
            "levels: [1, 2]",
            "4: streams.room.key.levels: leve",
        ),
        (
            "join: 'T', format: '%Y-%m-%dT%H:%M'",
            "unit: ns",
            "joined columns are",
        ),
        ("[site, meta.sensor]", "[site, meta..sensor]", "9: streams.lab.key.fields[1]: "),
        (
            "fields: [date, clock], unit: iso",
            "fields: [a, b], unit: ms",
            "several joined fields are",
        ),
        (
            "fields: [date, clock], unit: iso",
            "columns: [a, b], unit: iso",
            "messages have no column",
        ),
        (
            "fields: [date, clock], unit: iso",
            "from: record, join: x",
            "10: streams.lab.time.join: ",
        ),
        (
            "levels: [2, 4]",
            "levels: [2, 5]",
            "topics[0]: 'home/+/+/+': matching topics have no level",
        ),
        ("levels: [2, 4]", "levels: [2, x]", "15: streams.home.key.levels[1]: 'x' is not a whole"),
        ("levels: [2, 4]", "levels: [2, 0]", "15: streams.home.key.levels[1]: 0 is out of range"),
        (
            "levels: [2, 4]",
            "columns: [a, b]",
            "15: streams.home.key: takes exactly one of field, fi",
        ),
    ],
)
def test_what_is_wrong_with_several_parts(old: str, new: str, reported: str) -> None:
    text = JOINED.replace('"', "'")
    assert text.count(old) == 1
    assert any(
        f"f.yaml:{reported}" in error or reported in error
        for error in errors(text.replace(old, new))
    )


def test_keys_and_times_of_what_carries_a_reading(tmp_path: Path) -> None:
    d = parse(BY_RECORD).deployment
    lab = d.streams["lab"]
    assert (lab.key, lab.time) == (KeySpec(from_="record"), TimeSpec(from_="record"))
    stored = tmp_path / "d.recorded"
    stored.write_text(to_text(d))
    assert read_stored(stored).streams == d.streams
    for text in (BY_ARRIVAL, MQTT_BY_ARRIVAL):
        assert parse(text).deployment.streams["lab"].time == TimeSpec(from_="arrival")
        sporadic = text.replace("expect_every: 5s", "sporadic: true")
        checked = parse(sporadic)
        assert checked.deployment.streams["lab"].expect_every_us is None
        assert checked.warnings == (), "no reading is late, and disorder is refused"


@pytest.mark.parametrize(
    ("text", "old", "new", "reported"),
    [
        (
            BY_RECORD,
            "time: {from: record}",
            "time: {from: producer}",
            "time.from: must be 'record'",
        ),
        (
            BY_RECORD,
            "time: {from: record}",
            "time: {from: arrival}",
            "time.from: is for a stream with",
        ),
        (
            BY_RECORD,
            "time: {from: record}",
            "time: {from: record, unit: ms}",
            "time.unit: is for tim",
        ),
        (
            BY_RECORD,
            "time: {from: record}",
            "time: {from: record, zone: UTC}",
            "time.zone: is for ti",
        ),
        (
            BY_RECORD,
            "time: {from: record}",
            "time: {from: record, field: at}",
            "time: takes exactly",
        ),
        (
            BY_RECORD,
            "key: {from: record}",
            "key: {from: record, value: v}",
            "key: takes exactly one",
        ),
        (BY_RECORD, "key: {from: record}", "key: {from: arrival}", "key.from: must be 'record'"),
        (
            BY_ARRIVAL,
            "from: arrival",
            "from: record",
            "time.from: is the time of a Kafka record, whi",
        ),
        (
            BY_ARRIVAL,
            "field: mote",
            "from: record",
            "key.from: is the key of a Kafka record, which",
        ),
        (
            BY_ARRIVAL,
            "expect_every: 5s",
            "expect_every: 5s\n    disorder: 1s",
            "disorder: is for times",
        ),
        (BY_ARRIVAL, "streams:", "clock: data\nstreams:", "time.from: needs clock: wall"),
        (MQTT_BY_ARRIVAL, "from: arrival", "from: record", "the time of arrival is from: arrival"),
        (
            SMALL,
            "column: t, unit: s",
            "from: arrival",
            "s.time.from: is for a stream with mqtt or ht",
        ),
        (SMALL, "column: t, unit: s", "from: record", "s.time.from: is the time of a Kafka record"),
        (SMALL, "column: k", "from: record", "s.key.from: is the key of a Kafka record"),
    ],
)
def test_what_is_wrong_with_a_key_or_time_from_elsewhere(
    text: str, old: str, new: str, reported: str
) -> None:
    assert text.count(old) == 1
    (error,) = errors(text.replace(old, new))
    assert re.match(r"f\.yaml:\d+: streams\.", error)
    assert reported in error


LOCAL = SMALL.replace("unit: s", "unit: iso, zone: Europe/Berlin, fold: second")


def test_local_times_have_a_zone(tmp_path: Path) -> None:
    d = parse(LOCAL).deployment
    time = TimeSpec(("t",), unit="iso", zone="Europe/Berlin", fold="second")
    assert d.streams["s"].time == time
    without_fold = parse(LOCAL.replace(", fold: second", "")).deployment
    assert without_fold.streams["s"].time.fold == "refuse"
    posted = POSTED.replace("unit: us", "format: '%Y-%m-%d', zone: America/New_York")
    assert parse(posted).deployment.streams["lab"].time.zone == "America/New_York"
    stored = tmp_path / "d.recorded"
    stored.write_text(to_text(d))
    assert read_stored(stored).streams == d.streams


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("Europe/Berlin", "Europe/Berln", "'Europe/Berln' is not the name of a time zone, as in"),
        ("Europe/Berlin", "Europe/Berln", "; did you mean 'Europe/Berlin'?"),
        ("Europe/Berlin", "berlin", "; did you mean 'Europe/Berlin'?"),
        ("Europe/Berlin", "new york", "; did you mean 'America/New_York'?"),
        ("Europe/Berlin", "+01:00", "'+01:00' is not the name of a time zone"),
        ("Europe/Berlin", "localtime", "'localtime' is not the name of a time zone"),
        ("Europe/Berlin", "../etc/passwd", "is not the name of a time zone"),
        ("zone: Europe/Berlin", "zone: ''", "must not be empty"),
        ("unit: iso", "unit: ms", "is for local times, which are texts: unit: ms counts from 1970"),
        ("unit: iso", "format: '%Y %z'", "is for local times: %z in '%Y %z' is the offset of each"),
    ],
)
def test_what_is_wrong_with_a_zone(old: str, new: str, reported: str) -> None:
    assert LOCAL.count(old) == 1
    (error,) = errors(LOCAL.replace(old, new))
    assert error.startswith("f.yaml:5: streams.s.time.zone: ")
    assert reported in error


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("fold: second", "fold: third", "fold: must be 'first', 'second' or 'refuse', not 'third'"),
        (" zone: Europe/Berlin,", "", "fold: is for local times, of which an hour occurs twice"),
    ],
)
def test_what_is_wrong_with_a_fold(old: str, new: str, reported: str) -> None:
    assert LOCAL.count(old) == 1
    (error,) = errors(LOCAL.replace(old, new))
    assert error.startswith(f"f.yaml:5: streams.s.time.{reported}")


def test_a_machine_without_zones_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zones, "zone_names", frozenset)
    (error,) = errors(LOCAL)
    assert error.endswith("this machine has no time zones: install the package tzdata")


def test_a_stream_that_is_posted() -> None:
    d = parse(POSTED).deployment
    assert d.http == HttpListenSpec("127.0.0.1", 9000)
    lab = d.streams["lab"]
    assert lab.http == HttpInputSpec("lab.tokens")
    # Fields of JSON and columns of CSV have one name.
    assert lab == parse(POSTED.replace("field:", "column:")).deployment.streams["lab"]
    assert (lab.key, lab.time) == (KeySpec(column="mote"), TimeSpec(("at",), unit="us"))
    assert parse(SMALL).deployment.http == HttpListenSpec("127.0.0.1", 8088)


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("127.0.0.1:9000", "127.0.0.1", "2: http.listen: '127.0.0.1' is not a HOST:PORT"),
        ("127.0.0.1:9000", "127.0.0.1:0", "2: http.listen: port 0 is not between 1 and"),
        ("127.0.0.1:9000", "[::1:9000", "2: http.listen: '[::1:9000' is not a HOST:PORT"),
        ('"}', '", tls: {key: k}}', "2: http.tls.certificate: is required"),
        ('"}', '", liste: 1}', "2: http.liste: unknown field; did you mean 'listen'?"),
        ("    expect_every: 5s\n", "", "4: streams.lab.expect_every: HTTP does not show"),
        ("token_file: lab.tokens", "token: x", "5: streams.lab.http.token: unknown field"),
        (
            "key: {field: mote}",
            "topic: {name: t, format: json}\n    key: {field: mote}",
            "5: streams.lab.http: a stream has only one of topic, mqtt and http, not",
        ),
    ],
)
def test_what_is_wrong_with_a_posted_stream(old: str, new: str, reported: str) -> None:
    assert POSTED.count(old) == 1
    assert any(f"f.yaml:{reported}" in error for error in errors(POSTED.replace(old, new)))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "plant.example", "10.1.2.3"])
def test_an_address_that_others_reach_needs_tokens_and_should_have_tls(host: str) -> None:
    reached = POSTED.replace("127.0.0.1", host)
    (warning,) = parse(reached).warnings
    assert "f.yaml:2: http.listen" in warning
    assert "without TLS" in warning
    tls = reached.replace('"}', '", tls: {certificate: c.pem, key: k.pem}}')
    checked = parse(tls)
    assert checked.warnings == ()
    assert checked.deployment.http.certificate_file == "c.pem"
    (reported,) = errors(reached.replace("token_file: lab.tokens", ""))
    assert reported.startswith("f.yaml:5: streams.lab.http: needs a token_file")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_this_machine_may_post_without_a_token(host: str) -> None:
    text = POSTED.replace("127.0.0.1", host).replace("token_file: lab.tokens", "")
    assert parse(text).warnings == ()


def fed(line: str) -> str:
    return FED.replace("    disorder: 1s\n", f"    disorder: 1s\n    {line}\n")


def test_a_topic_that_does_not_say_what_silence_means_is_refused_with_the_lines_to_add() -> None:
    (reported,) = errors(FED)
    assert reported.startswith(
        "f.yaml:3: streams.lab.expect_every: a topic does not show whether a silent producer"
    )
    lines = re.findall("`(.+?)`", reported)
    assert lines == ["expect_every: auto", "expect_every: 5s", "sporadic: true"]
    for line in lines:
        assert parse(fed(line)).warnings == ()
    assert errors(fed("sporadic: false")) == [reported], "that is not a declaration"


def test_the_three_declarations_of_silence() -> None:
    declared = [
        parse(fed(line)).deployment.streams["lab"]
        for line in ("expect_every: 7s", "expect_every: auto", "sporadic: true")
    ]
    assert [s.expect_every_us for s in declared] == [7_000_000, 5_000_000, None]
    assert [s.learns_gaps for s in declared] == [False, True, False]


def test_a_stream_of_files_may_be_silent_without_a_word() -> None:
    assert parse(SMALL).deployment.streams["s"].expect_every_us is None
    assert parse(changed("disorder: 1s", "expect_every: auto")).deployment.streams["s"].learns_gaps


def test_too_many_records_at_one_orderer_are_warned_of() -> None:
    names = [f"s{i}" for i in range(625)]
    stream = "{key: {value: x}, time: {column: t, unit: s}, fields: [a], disorder: 1s}"
    streams = "\n".join(f"  {name}: {stream}" for name in names)
    text = f"""\
apiVersion: slackwater/v1
streams:
{streams}
queries:
  q:
    from: [{", ".join(names)}]
    window: {{size: 1s}}
    aggregate: [count]
    bound: 2s
"""
    # Four flushes a second each, at the multiples of 250 ms; the window's edges are among them.
    warnings = parse(text).warnings
    assert len(warnings) == 1
    assert "orderer q.0 would read 2500 records/s" in warnings[0]
    assert parse(text + "    children: 2\n").warnings == ()


def test_without_a_window_a_stream_is_flushed_every_10_ms() -> None:
    """A reading then waits for the end of its bucket: a tenth as many streams are too many."""
    names = [f"s{i}" for i in range(25)]
    spec = "{key: {column: k}, time: {column: t, unit: s}, fields: [a], disorder: 1s}"
    streams = "\n".join(f"  {name}: {spec}" for name in names)
    text = f"""\
apiVersion: slackwater/v1
streams:
{streams}
queries:
  q:
    from: [{", ".join(names)}]
    bound: 2s
"""
    parsed = parse(text)
    assert parsed.deployment.queries["q"].window is None
    assert parsed.deployment.queries["q"].aggregate == ()
    assert len(parsed.warnings) == 1
    assert "orderer q.0 would read 2500 records/s" in parsed.warnings[0]
    assert parse(text + "    children: 2\n").warnings == ()


@pytest.mark.parametrize(
    ("policy", "reported"),
    [
        ("{}", []),
        ("{failure: process, stabilization: process}", []),
        ("{failure: delay}", ["queries.q.policy.failure: delay: during a failure every answer"]),
        ("{stabilization: delay}", ["policy.stabilization: delay: during corrections every"]),
        ("{failure: delay, stabilization: delay}", ["policy.failure:", "policy.stabilization:"]),
        ("{stabilization: suspend}", ["suspend: no new window is answered during corrections"]),
        ("{failure: delay, stabilization: suspend}", ["policy.failure: delay", "suspend:"]),
    ],
)
def test_a_policy_warns_of_its_cost(policy: str, reported: list[str]) -> None:
    checked = parse(changed("bound: 2s", f"bound: 2s\n    policy: {policy}"))
    assert len(checked.warnings) == len(reported)
    assert all(part in text for part, text in zip(reported, checked.warnings, strict=True))


def test_a_margin_below_what_a_stage_takes_is_warned_of() -> None:
    short = changed("bound: 2s", "bound: 2s\n    margin: 100ms")
    assert parse(short).warnings == ()
    assert "f.yaml:14: queries.q.margin: 100ms" in parse(short, micro_batch=True).warnings[0]


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "deployment.yaml"
    file.write_text(SMALL, encoding="utf-8")
    assert (
        load_deployment(file) == check_deployment(str(file)).deployment == parse(SMALL).deployment
    )
    file.write_bytes(b"apiVersion: slackwater/v1\nclock: \xff\n")
    with pytest.raises(DeploymentError, match=r"deployment\.yaml:2: is not UTF-8"):
        load_deployment(file)
    with pytest.raises(DeploymentError, match="cannot be read: No such file"):
        load_deployment(tmp_path / "none.yaml")
    with pytest.raises(DeploymentError, match="cannot be read: Is a directory"):
        load_deployment(tmp_path)
    file.write_text("#" * (4 * 1024 * 1024 + 1), encoding="utf-8")
    with pytest.raises(DeploymentError, match="is larger than"):
        load_deployment(file)


JOIN = """\
apiVersion: slackwater/v1
clock: data
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x, y]}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
  c: {key: {column: k}, time: {column: t, unit: s}, fields: [x]}
queries:
  q:
    from: [b, a]
    join: {left: a, right: b, within: 500ms}
    where: left_y > right_x
    select: {rise: right_x - left_x}
    window: {size: 1s}
    aggregate: [max]
    bound: 2s
"""


def test_a_join_and_the_fields_of_its_rows() -> None:
    deployment = parse_deployment(JOIN, "f").deployment

    assert deployment.queries["q"].join == JoinSpec("a", "b", 500_000)
    assert deployment.input_fields("q") == ("left_x", "left_y", "right_x")
    assert deployment.output_fields("q") == ("rise",)


@pytest.mark.parametrize(
    ("old", "new", "emitted"),
    [
        ("from: [b, a]", "from: [b, a, c]", "10: queries.q.join: left and right must be the two"),
        ("left: a", "left: c", "10: queries.q.join: left and right must be the two sources"),
        ("left: a", "left: b", "10: queries.q.join: left and right must be the two sources"),
        ("500ms", "25h", "10: queries.q.join.within: 25h is too long"),
        ("within", "near", "10: queries.q.join.near: unknown field"),
        ("left_y", "y", "11: queries.q.where: 'y > right_x'"),
        ("left_y", "right_y", "11: queries.q.where: 'right_y > right_x'"),
        ("bound: 2s", "bound: 2s\n    children: 2", "16: queries.q.children: a join has one child"),
    ],
)
def test_what_a_join_cannot_be(old: str, new: str, emitted: str) -> None:
    with pytest.raises(DeploymentError, match=f"f:{emitted}"):
        parse_deployment(JOIN.replace(old, new, 1), "f")


def test_a_long_join_is_warned_of() -> None:
    assert parse_deployment(JOIN, "f").warnings == ()
    (warning,) = parse_deployment(JOIN.replace("500ms", "61s"), "f").warnings
    assert warning.startswith("f:10: queries.q.join.within: each bucket scans the readings")
