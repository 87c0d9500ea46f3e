"""Small queries as operations of controllers."""

from __future__ import annotations

from slackwater.deployment.parse import parse_deployment
from slackwater.node.applied import AppliedQuery, to_text
from slackwater.protocols.iads.control_object import ApplyQuery

_HEAD = """\
apiVersion: slackwater/v1
streams:
  lab: {key: {value: lab}, time: {column: t, unit: s}, fields: [x]}
queries:
"""


def apply(name: str, where: str = "x > 0") -> ApplyQuery:
    """Return the operation that applies a query over one stream, without a window."""
    text = f"{_HEAD}  {name}: {{from: [lab], where: {where}, bound: 2s}}\n"
    return ApplyQuery(name, to_text(AppliedQuery(name, parse_deployment(text, name).deployment)))
