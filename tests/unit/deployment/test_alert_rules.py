"""The section `alerts`: what is refused, with file, line and field."""

from __future__ import annotations

import pytest

from slackwater.deployment.parse import parse_deployment
from slackwater.model.alerts import AlertSpec
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import DeploymentError

FILE = """\
apiVersion: slackwater/v1
streams:
  lab: {key: {column: k}, time: {column: at, unit: us}, fields: [t]}
  attic: {key: {column: k}, time: {column: at, unit: us}, fields: [t]}
queries:
  rows: {from: [lab], bound: 2s}
  climate: {from: [lab], window: {size: 1s}, aggregate: [count, avg], bound: 2s}
alerts:
"""


def parsed(*alerts: str) -> dict[str, tuple[AlertSpec, ...]]:
    text = FILE + "".join(f"  {alert}\n" for alert in alerts)
    queries = parse_deployment(text, "d.yaml").deployment.queries
    return {name: query.alerts for name, query in queries.items()}


def test_a_rule_is_in_the_definition_of_its_query() -> None:
    of = parsed(
        "hot: {query: climate, when: t_avg > 26, for: 2, tentative: act}",
        "any: {query: rows, when: t > 26 AND key <> 'x'}",
        "mute: {stream: lab, missing: 30s}",
    )
    assert of["climate"] == (AlertSpec("hot", "t_avg > 26", 2, "act"),)
    silent = AlertSpec("mute", stream="lab", missing_us=30_000_000)
    assert of["rows"] == (AlertSpec("any", "t > 26 AND key <> 'x'"), silent), (
        "the first that reads it"
    )


@pytest.mark.parametrize(
    ("alert", "error"),
    [
        ("a: {query: climat, when: t_avg > 26}", "a.query: there is no query 'climat'; did you"),
        ("a: {query: climate, when: t > 26}", "a.when: 't > 26': there is no field 't'"),
        ("a: {query: climate, when: t_avg >}", "a.when: 't_avg >':"),
        ("a: {query: climate, when: t_avg}", "a.when: 't_avg':"),
        ("a: {query: climate, when: t_avg > 1, for: 0}", "a.for: 0 is out of range"),
        ("a: {query: climate, when: t_avg > 1, tentative: maybe}", "a.tentative: must be 'wait'"),
        ("a: {query: climate, when: t_avg > 1, stream: lab}", "a.stream: is for missing"),
        ("a: {when: t_avg > 1}", "a.query: is required"),
        ("a: {query: climate}", "a: takes exactly one of when or missing, has none"),
        ("a: {missing: 3s}", "a.stream: is required"),
        ("a: {stream: lab, missing: -3s}", "a.missing: '-3s' is not a duration"),
        ("a: {stream: lab, missing: 0s}", "a.missing: must be longer than 0"),
        ("a: {stream: labb, missing: 3s}", "a.stream: there is no stream 'labb'; did you mean"),
        ("a: {stream: attic, missing: 3s}", "a.stream: no query reads attic"),
        ("a: {stream: lab, missing: 3s, for: 2}", "a.for: is for when"),
        ("a: {stream: lab, missing: 3s, wen: 2}", "a.wen: unknown field"),
        ("A: {stream: lab, missing: 3s}", "'A' is not a valid name"),
    ],
)
def test_what_is_wrong_has_its_line_and_field(alert: str, error: str) -> None:
    with pytest.raises(DeploymentError) as raised:
        parsed(alert)
    assert str(raised.value).startswith("d.yaml:9: alerts.")
    assert error in str(raised.value)


def test_a_definition_is_the_same_after_the_registry() -> None:
    text = FILE + "  hot: {query: climate, when: t_avg > 26, for: 2}\n"
    query = parse_deployment(text, "d.yaml").deployment.queries["climate"]
    assert QuerySpec.from_json(query.to_json()) == query
