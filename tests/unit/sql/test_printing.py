"""What is printed, as SQL or as YAML, is read as what was printed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slackwater.deployment.parse import load_deployment, parse_deployment
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.sql.declared import content_of
from slackwater.sql.document import parse_deployment_sql
from slackwater.sql.printer import deployment_text, yaml_text

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def printed(deployment: Deployment, where: str = "d.sql") -> Deployment:
    """Return the deployment of the statements that are printed of one, and of the file."""
    content = content_of(deployment)
    of_sql = parse_deployment_sql(deployment_text(content), where).deployment
    of_yaml = parse_deployment(yaml_text(content), where).deployment
    assert of_sql == of_yaml
    return of_sql


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_printed_as_statements(path: Path) -> None:
    deployment = load_deployment(path)
    assert printed(deployment) == deployment


def test_the_files_of_pages_are_printed_as_statements(tmp_path: Path) -> None:
    texts = [
        t
        for page in PAGES
        for t in re.findall(r"```yaml\n(apiV.*?)```", page.read_text(), re.DOTALL)
        if "\nsites:" not in t  # SQL has no words for them
    ]
    assert len(texts) >= 8
    for text in texts:
        deployment = parse_deployment(text, "d.yaml").deployment
        assert printed(deployment) == deployment, text


def test_every_field_of_streams_is_printed() -> None:
    text = """\
apiVersion: slackwater/v1
prefix: plant-7.
http: {listen: "[::1]:9000", tls: {certificate: c.pem, key: k.pem}}
streams:
  a:
    topic: {name: t, format: avro, registry: {url: "https://r:1/", credentials: f}, schemas: dir,
            from: end, proxies: 3, partitions: fixed, sequence: {field: s}}
    key: {fields: [a.b, '"c.d"'], join: "'"}
    time: {from: record}
    fields: {v: 'm.p', w: x}
    texts: [state]
    missing: [N/A, -999, "it's", '"']
    values: {true: 1, open: -0.5, big: 1e300, 'null?': 2}
    disorder: 90s
    site: north
    sporadic: true
  b:
    mqtt: {broker: "[::1]:1884", topics: [a/+/c], version: 3.1.1, format: json-array, client_id: x,
           qos: 0, in_flight: 50, session: 1h, tls: {ca_file: ca}, username: u, password_file: p,
           sequence: {field: n}}
    key: {levels: [1, 2]}
    time: {fields: [d, t], format: "%Y %H", zone: Europe/Berlin, fold: first, join: ""}
    fields: [v]
    expect_every: 1.5s
    ahead: 0s
  c:
    http: {token_file: tokens, sequence: {field: n.s}}
    key: {columns: [a, b]}
    time: {field: t, unit: ns}
    fields: [v]
    expect_every: auto
    ahead: 2h
  d: {http: {}, key: {level: 1}, time: {from: arrival}, fields: [v], sporadic: true}
  e:
    csv: {delimiter: "\\t", decimal: ",", skip_lines: 3}
    key: {value: "  k  "}
    time: {columns: [a], unit: iso}
    fields: {v: "column with 'quotes', \\"and\\" ümlauts \\U0001F600"}
queries:
  q: {from: [a, b, c, e], bound: 2s}
""".replace("{level: 1}, time: {from: arrival}", "{value: d}, time: {from: arrival}")
    deployment = parse_deployment(text, "d.yaml").deployment
    assert printed(deployment) == deployment
    for shown in (deployment_text(content_of(deployment)), yaml_text(content_of(deployment))):
        for word in ("plant-7.", "credentials", "partitions", "password_file", "skip_lines"):
            assert word in shown


def test_children_that_queries_share_are_not_printed() -> None:
    text = """\
apiVersion: slackwater/v1
clock: data
streams:
  a: {key: {value: k}, time: {column: t, unit: s}, fields: [v]}
queries:
  q: {from: [a], window: {size: 1m}, aggregate: [sum], bound: 2s}
  r: {from: [a], window: {size: 2m}, aggregate: [sum], bound: 2s}
"""
    deployment = parse_deployment(text, "d.yaml").deployment
    assert share(deployment) != deployment
    assert printed(share(deployment)) == deployment


@pytest.mark.parametrize("word", ["table", "emit", "from", "tumble", "if", "join", "null", "key"])
def test_words_of_sql_as_names_are_printed(word: str) -> None:
    text = (
        f"""\
apiVersion: slackwater/v1
streams:
  {word}: {{key: {{value: k}}, time: {{column: t, unit: s}}, fields: [v]}}
  b: {{key: {{value: k}}, time: {{column: t, unit: s}}, fields: [v]}}
queries:
  query: {{from: [{word}], bound: 2s}}
  other: {{from: [{word}, b], window: {{size: 1m}}, aggregate: [sum], bound: 2s}}
  select: {{from: [{word}, b], join: {{left: {word}, right: b, within: 1s}}, bound: 2s}}
""".replace("  null:", '  "null":')
        .replace("[null", '["null"')
        .replace("left: null", 'left: "null"')
    )
    deployment = parse_deployment(text, "d.yaml").deployment
    assert printed(deployment) == deployment


FIELDS = ("v", "w", "select", "window_start", "_1", "a_avg", "FROM")
names = st.one_of(
    st.sampled_from(FIELDS), st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
).filter(lambda name: name != "key")
RESERVED = {"and", "or", "not", "is", "in", "between", "case", "when", "then", "else", "end"} | {
    "null",
    "true",
    "false",
}
durations = st.tuples(st.integers(1, 1_440), st.sampled_from(["ms", "s", "m"]))


def quoted(name: str) -> str:
    return f'"{name}"' if name.lower() in RESERVED else name


@st.composite
def expressions(draw: st.DrawFn, fields: list[str]) -> str:
    field = draw(st.sampled_from(fields))
    shown = draw(st.sampled_from([quoted(field), f'"{field}"']))
    return draw(
        st.sampled_from(
            [
                shown,
                f"{shown} * 1.8 + 32",
                f"CASE WHEN {shown} > 1 THEN abs({shown}) ELSE -{shown} END",
                f"least({shown}, 1, 2)",
                f"-{shown}",
                f"({shown})",
            ]
        )
    )


@st.composite
def queries(draw: st.DrawFn, fields: list[str]) -> dict[str, Any]:
    sources = draw(st.permutations(["a", "b-1", "c"]))[: draw(st.integers(1, 3))]
    content: dict[str, Any] = {"from": sources, "bound": "10s"}
    used = fields
    if len(sources) == 2 and draw(st.booleans()):
        left, right = draw(st.permutations(sources))
        number, unit = draw(durations)
        content["join"] = {"left": left, "right": right, "within": f"{number}{unit}"}
        used = [f"left_{field}" for field in fields]
    if draw(st.booleans()):
        field = draw(st.sampled_from(used))
        content["where"] = draw(
            st.sampled_from(
                [
                    f"{quoted(field)} > 1",
                    f'"{field}" IS NOT NULL',
                    f"key IN ('a', 'it''s; --') OR {quoted(field)} BETWEEN 1 AND 2",
                ]
            )
        )
    if draw(st.booleans()):
        content["select"] = draw(st.dictionaries(names, expressions(used), min_size=1, max_size=4))
    if draw(st.booleans()):
        aggregates: list[Any] = draw(
            st.lists(st.sampled_from(sorted(AGGREGATES)), min_size=1, max_size=4, unique=True)
        )
        if draw(st.booleans()):
            shares = draw(st.lists(st.integers(1, 999_999), min_size=1, max_size=5, unique=True))
            aggregates.insert(0, {"quantiles": [f"0.{share:06d}" for share in shares]})
        if draw(st.booleans()):
            aggregates.append({"top": str(draw(st.integers(1, 100)))})
        content["aggregate"] = aggregates
        shown = list(content.get("select", used))
        texts = content.get("select", {})
        # With the names of fields alone, text has those that are aggregated, and no select.
        is_written = not texts or any(text not in {n, f'"{n}"'} for n, text in texts.items())
        if is_written and len(shown) > 1 and len(aggregates) > 1 and draw(st.booleans()):
            rest = dict.fromkeys(shown[1:], aggregates[:1])
            content["aggregate"] = {shown[0]: aggregates, **rest}
        content["window"] = draw(
            st.sampled_from(
                [
                    {"size": "10s"},
                    {"size": "90s", "slide": "1.5s"},
                    {"size": "1w"},
                    {"size": "1w", "starts": "friday", "offset": "1h"},
                    {"size": "3mo", "zone": "Asia/Tokyo"},
                    {"size": "1d", "offset": "6h", "zone": "UTC"},
                ]
            )
        )
    if draw(st.booleans()):
        content["policy"] = {"failure": "delay", "stabilization": "suspend"}
    for name, most in (("replicas", 26), ("parts", 1024), ("copies", 2)):
        if draw(st.booleans()):
            content[name] = str(draw(st.integers(1, most)))
    if "window" in content and draw(st.booleans()):
        content["mergers"] = str(draw(st.integers(1, 26)))
    return content


@st.composite
def contents(draw: st.DrawFn) -> dict[str, Any]:
    fields = draw(st.lists(names, min_size=1, max_size=4, unique=True))
    texts = st.text(min_size=1, max_size=8).filter(lambda text: text.strip() and text.isprintable())
    sources = draw(st.lists(texts, min_size=len(fields), max_size=len(fields), unique=True))
    stream = {
        "key": {"value": draw(texts)},
        "time": {"column": draw(texts), "unit": "ms"},
        "fields": dict(zip(fields, sources, strict=True)),
    }
    content: dict[str, Any] = {
        "apiVersion": "slackwater/v1",
        "streams": {"a": stream, "b-1": stream, "c": stream},
        "queries": {f"q-{i}": draw(queries(fields)) for i in range(draw(st.integers(1, 2)))},
    }
    alerts = draw(st.lists(rules, max_size=3))
    if alerts:
        content["alerts"] = {f"r-{i}": rule for i, rule in enumerate(alerts)}
    return content


rules = st.fixed_dictionaries(
    {
        "query": st.just("q-0"),
        "when": st.sampled_from(["key <> 'x'", "key = 'it''s' OR key > 'a'"]),
    },
    optional={"for": st.integers(1, 9).map(str), "tentative": st.sampled_from(["wait", "act"])},
)


@given(contents())
def test_any_definition_is_printed_as_it_is(content: dict[str, Any]) -> None:
    of_yaml = parse_deployment(yaml_text(content), "d.yaml").deployment
    of_sql = parse_deployment_sql(deployment_text(content), "d.sql").deployment
    assert of_sql == of_yaml
    assert printed(of_yaml) == of_yaml


def test_another_default_of_margins_is_printed() -> None:
    deployment = load_deployment(EXAMPLES[0])
    queries = {n: replace(q, margin_us=150_000) for n, q in deployment.queries.items()}
    in_batches = replace(deployment, queries=queries)
    assert all(q["margin"] == "150ms" for q in content_of(in_batches)["queries"].values())
    assert not any("margin" in q for q in content_of(in_batches, 150_000)["queries"].values())
