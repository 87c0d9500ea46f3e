"""Small queries as operations of controllers."""

from __future__ import annotations

from dataclasses import replace

from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_object import ApplyQuery
from slackwater.deployment.parse import parse_deployment
from slackwater.model.names import base_of

_HEAD = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: lab-readings, format: json}
    key: {value: lab}
    time: {field: t, unit: s}
    fields: [x]
    sporadic: true
queries:
"""


def apply(name: str, where: str = "x > 0") -> ApplyQuery:
    """Return the operation that applies a query, or a generation of one.

    It reads one stream and has no window.
    """
    query = base_of(name)
    text = f"{_HEAD}  {query}: {{from: [lab], where: {where}, copies: 1, bound: 2s}}\n"
    deployment = parse_deployment(text, query).deployment
    queries = {name: replace(deployment.queries[query], name=name)}
    return ApplyQuery(name, to_text(AppliedQuery(name, replace(deployment, queries=queries))))
