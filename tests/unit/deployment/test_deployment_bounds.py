"""Deployment files that exceed a bound, or are malformed: one sentence each, without delay."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from slackwater.deployment.bounds import (
    CHAIN_QUERIES_MAX,
    ERRORS_SHOWN_MAX,
    FIELDS_MAX,
    STREAMS_MAX,
    WINDOWS_PER_READING_MAX,
)
from slackwater.deployment.parse import check_deployment, load_deployment
from slackwater.model.errors import DeploymentError
from slackwater.model.limits import KEY_CHARS_MAX

STREAM = "{key: {column: k}, time: {column: t, unit: us}, fields: [x], expect_every: 5s}"
QUERY = "{from: [s], window: {size: 1m}, aggregate: [count], bound: 2s}"
HEAD = "apiVersion: slackwater/v1\nstreams:\n"
SMALL = f"{HEAD}  s: {STREAM}\nqueries:\n  q: {QUERY}\n"
MEGABYTE = 1 << 20


def changed(old: str, new: str) -> str:
    assert old in SMALL
    return SMALL.replace(old, new)


def refusal(folder: Path, content: str | bytes) -> list[str]:
    """Return the errors, each with file and line; none is longer than a screen."""
    path = folder / "d.yaml"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DeploymentError) as error:
        check_deployment(path)
    sentences = str(error.value).splitlines()
    assert all(one.startswith(f"{path}:") and len(one) < 1_000 for one in sentences), sentences
    return [one.removeprefix(f"{path}:") for one in sentences]


def streams(n: int) -> str:
    named = "".join(f"  s{i}: {STREAM}\n" for i in range(n))
    listed = ", ".join(f"s{i}" for i in range(n))
    return f"{HEAD}{named}queries:\n  q: {QUERY.replace('[s]', f'[{listed}]')}\n"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("from: [s]", "from: [s], where: ", "5: queries.q.where"),
        ("from: [s]", "from: [s], where: null", "5: queries.q.where"),
        ("from: [s]", "from: [s], select: ", "5: queries.q.select"),
        ("from: [s]", "from: [s], select: {y: }", "5: queries.q.select.y"),
        ("from: [s]", "from: [s], join: ", "5: queries.q.join"),
        ("from: [s]", "from: [s], margin: ", "5: queries.q.margin"),
        ("from: [s]", "from: [s], policy: ", "5: queries.q.policy"),
        ("from: [s]", "from: [s], replicas: ", "5: queries.q.replicas"),
        ("size: 1m", "size: 1m, slide: ", "5: queries.q.window.slide"),
        ("window: {size: 1m}", "window: ", "5: queries.q.window"),
        ("expect_every: 5s", "expect_every: ", "3: streams.s.expect_every"),
        ("expect_every: 5s", "disorder: ", "3: streams.s.disorder"),
        ("expect_every: 5s", "topic: ", "3: streams.s.topic"),
        ("expect_every: 5s", "csv: ", "3: streams.s.csv"),
        ("unit: us", "unit: ", "3: streams.s.time.unit"),
        ("column: k", "column: ", "3: streams.s.key.column"),
        ("streams:", "clock:\nstreams:", "2: clock"),
    ],
)
def test_a_field_without_a_value_is_a_mistake(
    tmp_path: Path, old: str, new: str, field: str
) -> None:
    reported = refusal(tmp_path, changed(old, new))
    assert f"{field}: is empty: give it a value, or leave the field out" in reported
    assert sum("is empty" in one for one in reported) == 1


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state", "__x"])
def test_kafkas_own_topics_are_no_streams(tmp_path: Path, name: str) -> None:
    topic = changed("column: k", "field: k").replace("column: t", "field: t")
    topic = topic.replace("fields: [x]", f"fields: [x], topic: {{name: {name}, format: json}}")
    reported = f"3: streams.s.topic.name: '{name}' is one of Kafka's own topics"
    assert refusal(tmp_path, topic) == [reported]


@pytest.mark.parametrize(
    ("window", "reported"),
    [
        ("100d, slide: 1us", "1us puts each reading into 8640000000000 windows"),
        ("100d, slide: 1ms", "slide by 86400ms or more"),
        ("36525d, slide: 1h", "1h puts each reading into 876600 windows"),
    ],
)
def test_windows_that_slide_too_finely(tmp_path: Path, window: str, reported: str) -> None:
    (found,) = refusal(tmp_path, changed("size: 1m", f"size: {window}"))
    assert found.startswith("5: queries.q.window.slide: ")
    assert reported in found
    assert f"at most {WINDOWS_PER_READING_MAX}" in found


def test_the_most_windows_are_allowed(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(changed("size: 1m", f"size: {WINDOWS_PER_READING_MAX}s, slide: 1s"))
    assert load_deployment(path).queries["q"].window


def test_windows_faster_than_an_orderer(tmp_path: Path) -> None:
    (found,) = refusal(tmp_path, changed("size: 1m", "size: 1us"))
    assert found == (
        "5: queries.q.from: orderer q.0 would read 1000000 records/s, at most 20000: "
        "raise children or slide"
    )
    path = tmp_path / "data.yaml"
    path.write_text(changed("size: 1m", "size: 1us").replace("streams:", "clock: data\nstreams:"))
    assert load_deployment(path).queries["q"].window  # the rate of old readings is unknown


def test_ten_thousand_streams(tmp_path: Path) -> None:
    began = time.process_time()
    (found,) = refusal(tmp_path, streams(10_000))
    assert time.process_time() - began < 10
    assert found.startswith(f"{STREAMS_MAX + 3}: is entry 1001 of one mapping: at most 1000 ")
    assert "let sensors share a stream" in found


def test_the_most_streams_are_read_soon(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_text(streams(STREAMS_MAX))
    began = time.process_time()
    checked = check_deployment(path)
    assert time.process_time() - began < 10
    assert len(checked.deployment.streams) == STREAMS_MAX
    assert ["would read 4000 records/s" in reported for reported in checked.warnings] == [True]


def test_too_many_fields(tmp_path: Path) -> None:
    fields = ", ".join(f"x{i}" for i in range(FIELDS_MAX + 1))
    reported = f"1001 fields are too many: at most {FIELDS_MAX}"
    assert refusal(tmp_path, changed("[x]", f"[{fields}]"))[0] == f"3: streams.s.fields: {reported}"
    select = ", ".join(f"a{i}: x" for i in range(FIELDS_MAX + 1))
    found = refusal(tmp_path, changed("from: [s]", f"from: [s], select: {{{select}}}"))
    assert found[0].startswith("5: is entry 1001 of one mapping: at most 1000 ")
    halves = [", ".join(f"{side}{i}" for i in range(600)) for side in "ab"]
    two = changed("[x]", f"[{halves[0]}]").replace("[s]", "[s, r]")
    two = two.replace("queries:", f"  r: {STREAM.replace('[x]', f'[{halves[1]}]')}\nqueries:")
    assert refusal(tmp_path, two) == [f"6: queries.q.from: {reported.replace('1001', '1200')}"]


def test_chains_have_a_depth(tmp_path: Path) -> None:
    def chain(queries: int) -> str:
        each = "{from: [FROM], window: {size: 1m}, aggregate: [count], select: {x: 1}, bound: 99s}"
        lines = (
            f"  c{i}: {each.replace('FROM', f'c{i - 1}' if i else 's')}\n" for i in range(queries)
        )
        return SMALL + "".join(lines)

    path = tmp_path / "d.yaml"
    path.write_text(chain(CHAIN_QUERIES_MAX))
    deployment = load_deployment(path)
    assert deployment.stages(f"c{CHAIN_QUERIES_MAX - 1}") == 2 * CHAIN_QUERIES_MAX
    reported = f"queries.c32.from: is the end of a chain of more than {CHAIN_QUERIES_MAX} queries"
    assert any(reported in one for one in refusal(tmp_path, chain(CHAIN_QUERIES_MAX + 1)))
    backwards = "\n".join(
        [SMALL.rstrip("\n"), *reversed(chain(100).splitlines()[len(SMALL.splitlines()) :])]
    )
    assert any("more than 32 queries" in one for one in refusal(tmp_path, backwards))
    ring = "".join(f"  c{i}: {QUERY.replace('[s]', f'[c{(i + 1) % 100}]')}\n" for i in range(100))
    assert any("more than 32 queries" in one for one in refusal(tmp_path, SMALL + ring))


def test_ways_that_multiply_are_walked_once(tmp_path: Path) -> None:
    # Each of 30 levels reads both queries of the level before: 2^30 paths to the stream.
    text = SMALL
    for i in range(30):
        before = f"a{i - 1}, b{i - 1}" if i else "s"
        text += "".join(f"  {n}{i}: {{from: [{before}], bound: 99s}}\n" for n in "ab")
    path = tmp_path / "d.yaml"
    path.write_text(text)
    deployment = load_deployment(path)
    last = deployment.in_order()[-1]
    assert deployment.stages(last) == 60
    assert deployment.source_streams(last) == ("s",)
    assert deployment.input_fields(last) == ("x",)
    assert deployment.bound_us("a0") == 99_000_000
    assert deployment.deadline_us("a0") == 99_000_000 - 60 * 50_000


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (SMALL.encode("utf-16"), "1: is UTF-16: save it as UTF-8"),
        (SMALL.encode("utf-16-le"), "1: not YAML: contains a non-printable character"),
        (SMALL.encode() + b"\0", "6: not YAML: contains a non-printable character"),
        ((SMALL + "# \u00e9\n").encode("latin-1"), "6: is not UTF-8 text: save it as UTF-8"),
        (SMALL.replace("  q:", "\tq:").encode(), "5: not YAML: found character '\\t'"),
        (b"- a\n- b\n", "1: must be a mapping, name: value"),
        (b"42", "1: must be a mapping, name: value"),
        (b"\n\n", "1: is empty"),
        (b"a: " + b"[" * 5_000, "1: not YAML: nested more than 20 levels deep"),
        ((SMALL + "---\n" + SMALL).encode(), "6: not YAML: but found another document"),
    ],
    ids=range(10),
)
def test_what_is_no_text_of_ours(tmp_path: Path, content: bytes, reported: str) -> None:
    (found,) = refusal(tmp_path, content)
    assert found.startswith(reported)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "d.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.replace("\n", "\r\n").encode())
    assert load_deployment(path).queries.keys() == {"q"}


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ("[x]", "[yes, no, on]", None),
        ("[x]", "[null]", "3: streams.s.fields: must be a list of columns"),
        (
            "[x]",
            "[x\u0661]",
            "3: streams.s.fields.x\u0661: 'x\u0661' is not a valid name of a field",
        ),
        ("[x]", "[" + "x" * MEGABYTE + "]", "has 1048576 characters, at most 255"),
        ("[x]", "{x: " + "x" * MEGABYTE + "}", "fields.x: has 1048576 characters, at most 255"),
        ("{column: k}", "{column: " + "k" * 256 + "}", "key.column: has 256 characters, at most"),
        ("{column: k}", "{value: " + "k" * KEY_CHARS_MAX + "}", None),
        ("{column: k}", "{value: " + "k" * (KEY_CHARS_MAX + 1) + "}", "a key has at most 65536"),
        ("size: 1m", "size: NaN", "5: queries.q.window.size: 'NaN' is not a duration"),
        ("size: 1m", "size: -1m", "5: queries.q.window.size: '-1m' is not a duration"),
        ("size: 1m", "size: \u0661m", "5: queries.q.window.size: '\u0661m' is not a duration"),
        ("size: 1m", "size: " + "1" * MEGABYTE + "m", "queries.q.window.size: '111"),
        ("[count]", "[" + "c" * MEGABYTE + "]", "5: queries.q.aggregate[0]: must be 'count'"),
        ("[count]", "[count, count]", "5: queries.q.aggregate: lists an aggregate twice"),
        ("slackwater/v1", "v" * MEGABYTE, "1: apiVersion: must be 'slackwater/v1'"),
        ("[s]", "[q]", "5: queries.q.from[0]: queries read each other in a cycle: q -> q"),
        ("[s]", "[s], replicas: 99999999999999999999999", "5: queries.q.replicas: 99999"),
        ("[s]", "[s], parts: true", "5: queries.q.parts: 'true' is not a whole number"),
        ("[s]", "[s], where: \"key = '\\ud800'\"", "where: contains a character that is not"),
        ("[s]", "[s], where: " + "x+" * 9_000, "is longer than 8192 characters"),
        ("bound: 2s", "bound: 2s, bound: 3s", "5: 'bound' is defined twice"),
    ],
    ids=range(21),
)
def test_mean_values(tmp_path: Path, old: str, new: str, reported: str | None) -> None:
    if reported is None:
        path = tmp_path / "d.yaml"
        path.write_text(changed(old, new))
        load_deployment(path)
    else:
        assert any(reported in one for one in refusal(tmp_path, changed(old, new)))


def test_very_many_mistakes_are_counted(tmp_path: Path) -> None:
    content = HEAD + "".join(f"  S{i}: {{}}\n" for i in range(900)) + "queries: {q: {}}\n"
    reported = refusal(tmp_path, content)
    assert len(reported) == ERRORS_SHOWN_MAX + 1
    assert reported[-1].endswith(" more errors")
