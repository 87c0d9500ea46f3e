"""The definition of a simulated query, as controllers record it.

The simulated fragments have their configuration from ``WorldConfig``; from the definition follows
what is to run: how many replicas, children and parts, and of which streams a proxy.
"""

from __future__ import annotations

from tests.simulator.config import WorldConfig

from slackwater.deployment.parse import parse_deployment
from slackwater.node.applied import AppliedQuery, to_text


def definition_of(config: WorldConfig) -> str:
    """Return the text of a query."""
    streams = "".join(
        f"  {name}: {{key: {{value: {name}}}, time: {{column: t, unit: s}}, fields: [x]}}\n"
        for name in config.streams
    )
    window = "" if config.rows else " window: {size: 1s}, aggregate: [count],"
    text = (
        f"apiVersion: slackwater/v1\nstreams:\n{streams}queries:\n"
        f"  {config.name}: {{from: [{', '.join(config.streams)}],{window} bound: 2s,"
        f" replicas: {config.replicas}, children: {len(config.children)}, parts: {config.parts}}}\n"
    )
    deployment = parse_deployment(text, "simulated").deployment
    return to_text(AppliedQuery(config.name, deployment))
