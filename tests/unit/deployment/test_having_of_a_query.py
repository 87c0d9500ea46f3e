"""``having`` in the file: what is refused, with its place, and what is registered."""

from __future__ import annotations

import pytest

from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import DeploymentError

FILE = """\
apiVersion: slackwater/v1
streams:
  s: {key: {column: k}, time: {column: t, unit: s}, fields: [x, y]}
queries:
  q:
    from: [s]
    window: {size: 1s}
    aggregate: {x: [max, avg], y: [count]}
    having: x_avg > 3 AND (y_count >= 2 OR key = 'a')
    bound: 2s
  r: {from: [s], window: {size: 2s}, aggregate: [max, avg, count], bound: 2s}
"""


def parsed(text: str = FILE) -> Deployment:
    return parse_deployment(text, "f.yaml").deployment


def test_it_is_registered_as_written_and_an_earlier_definition_has_none() -> None:
    queries = parsed().queries
    for query in queries.values():
        assert QuerySpec.from_json(query.to_json()) == query
    assert queries["q"].having == "x_avg > 3 AND (y_count >= 2 OR key = 'a')"
    assert "having" not in queries["r"].to_json()


def test_queries_that_differ_in_it_share_children() -> None:
    queries = share(parsed()).queries
    assert {query.child_query for query in queries.values()} == {"q"}


@pytest.mark.parametrize(
    ("written", "reported"),
    [
        ("x_sum > 3", "having: 'x_sum > 3': there is no field 'x_sum', only x_max, x_avg, y_count"),
        ("x > 3", "having: 'x > 3': there is no field 'x'"),
        ("x_avg", "having: 'x_avg': "),
        ("x_avg >", "having: 'x_avg >': "),
        ("''", "having: "),
    ],
)
def test_what_is_wrong_is_reported_with_its_place(written: str, reported: str) -> None:
    text = FILE.replace("x_avg > 3 AND (y_count >= 2 OR key = 'a')", written)
    with pytest.raises(DeploymentError) as caught:
        parsed(text)
    assert f"f.yaml:9: queries.q.{reported}" in str(caught.value)


def test_it_needs_a_window() -> None:
    text = FILE.replace("    window: {size: 1s}\n    aggregate: {x: [max, avg], y: [count]}\n", "")
    with pytest.raises(DeploymentError, match="a condition on readings is where"):
        parsed(text)


def test_its_form_is_checked_although_a_source_is_unknown() -> None:
    text = FILE.replace("from: [s]\n", "from: [t]\n").replace("x_avg > 3", "x_avg > > 3")
    with pytest.raises(DeploymentError) as caught:
        parsed(text)
    assert "queries.q.having" in str(caught.value)
    assert "there is no field" not in str(caught.value)
