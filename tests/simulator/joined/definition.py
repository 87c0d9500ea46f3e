"""The definition of a simulated query, as controllers record it.

The simulated fragments have their configuration from ``WorldConfig``; from the definition follows
what is to run: how many replicas, children and parts, and of which streams a proxy.
"""

from __future__ import annotations

from tests.simulator.config import WorldConfig

from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_state import ControlState
from slackwater.control.generations import as_generation
from slackwater.deployment.parse import parse_deployment
from slackwater.model.deployment import Deployment


def definition_of(config: WorldConfig, start_us: int) -> str:
    """Return the text of a query."""
    return to_text(AppliedQuery(config.name, _deployment_of(config), start_us))


def changed(config: WorldConfig, state: ControlState) -> tuple[str, str]:
    """Return the name and the text of a query's next generation, as the command line does.

    The definition is the same one: what is simulated is the change.
    """
    deployment, name = as_generation(_deployment_of(config), config.name, state)
    return name, to_text(AppliedQuery(name, deployment))


def _deployment_of(config: WorldConfig) -> Deployment:
    streams = "".join(
        f"  {name}: {{key: {{value: {name}}}, time: {{column: t, unit: s}}, fields: [x]}}\n"
        for name in config.streams
    )
    window = "" if config.rows else " window: {size: 1s}, aggregate: [count],"
    text = (
        f"apiVersion: slackwater/v1\nstreams:\n{streams}queries:\n"
        f"  {config.name}: {{from: [{', '.join(config.streams)}],{window} bound: 2s,"
        f" replicas: {config.replicas}, children: {len(config.children)}, parts: {config.parts},"
        f" copies: {config.copies}}}\n"
    )
    return parse_deployment(text, "simulated").deployment
