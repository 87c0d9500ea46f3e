"""The definition of a simulated query, as controllers record it.

The simulated fragments have their configuration from ``WorldConfig``; from the definition follows
what is to run: how many replicas, children and parts, of which streams a proxy, and whose children
the query reads.
"""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.config import WorldConfig

from slackwater.cli.query_changes import _running
from slackwater.control.applied import AppliedQuery, to_text
from slackwater.control.control_state import ControlState
from slackwater.control.generations import as_generation
from slackwater.control.recorded import deployment_of
from slackwater.deployment.parse import parse_deployment
from slackwater.deployment.sharing import share_applied
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec


def definition_of(config: WorldConfig, start_us: int) -> str:
    """Return the text of a query with children of its own, which nobody joins."""
    return to_text(AppliedQuery(config.name, _deployment_of(config), start_us))


def shared(config: WorldConfig, start_us: int, recorded: ControlState) -> tuple[QuerySpec, str]:
    """Return a query and its text, as the command line applies it to this record.

    It reads the children of a recorded query if it can, and others may join its own.
    """
    running, starts = _running(recorded), {config.name: start_us}
    begun = {name: at for name, each in running.items() if isinstance(at := each.start, int)}
    declared = _deployment_of(config)
    deployment, _ = share_applied(declared, {**starts}, deployment_of(running), begun)
    text = to_text(AppliedQuery(config.name, deployment, start_us))
    return deployment.queries[config.name], text


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
    window = "" if config.rows else " window: {size: 1s}, aggregate: [count, sum],"
    text = (
        f"apiVersion: slackwater/v1\nstreams:\n{streams}queries:\n"
        f"  {config.name}: {{from: [{', '.join(config.streams)}],{window} bound: 2s,"
        f" replicas: {config.replicas}, children: {len(config.children)}, parts: {config.parts},"
        f" copies: {config.copies}}}\n"
    )
    deployment = parse_deployment(text, "simulated").deployment
    if config.rows:
        return deployment
    # Windows of runs are shorter than the file allows for this bound.
    window_of = WindowSpec(config.window_us, config.slide_us)
    query = replace(deployment.queries[config.name], window=window_of)
    return replace(deployment, queries={config.name: query})
