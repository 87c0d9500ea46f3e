"""Which test files start a deployment of their own, and why they cannot use the shared one.

A start costs up to a minute of CPU time, so it is listed here, and a test of the repository
compares the list with the files.

Not counted: stand-ins for processes (``test_stack.py``), a start that is interrupted
(``test_interrupts.py``), and what only drills and tests on containers start.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Own:
    """Deployments that a file starts in ``make test``.

    Attributes:
        deployments: how many, each with a broker or on one of the file.
        sessions: how many Spark sessions they start, each in a JVM of its own.
        why: what cannot be tested on the shared deployment.
    """

    deployments: int
    sessions: int
    why: str


SHARED: Final = frozenset(
    {
        "test_alerts.py",
        "test_exporter.py",
        "test_query_changes.py",
        "test_silent_source.py",
        "test_sql.py",
    }
)
"""Files whose tests use the shared deployment, which starts twice (``test_query_changes.py``)."""

OWN: Final[Mapping[str, Own]] = {
    "test_aggregator.py": Own(0, 3, "an aggregator alone is killed, and gets damaged input"),
    "test_audit.py": Own(0, 1, "the audit's session, in the process of the test"),
    "test_backfill.py": Own(2, 0, "the command starts one"),
    "test_children.py": Own(
        1, 2, "its partitions are added, its aggregator and its mergers killed"
    ),
    "test_demo.py": Own(1, 1, "the command starts one"),
    "test_drills.py": Own(1, 2, "its broker is killed, and its logs are truncated"),
    "test_every_input.py": Own(1, 1, "it has `clock: data`"),
    "test_hostile.py": Own(2, 0, "its readers end their process at a word"),
    "test_nodes.py": Own(1, 0, "controllers and nodes as processes"),
    "test_nodes_copies.py": Own(1, 0, "controllers and nodes as processes"),
    "test_own_hosts.py": Own(1, 0, "its host is drained"),
    "test_own_topics.py": Own(2, 0, "its own topics are deleted, after which it does not start"),
    "test_readme.py": Own(1, 2, "the pages' command starts it"),
    "test_secured.py": Own(2, 1, "TLS and access control; `up --secure`"),
    "test_sites.py": Own(2, 2, "a site and a centre, each with a broker"),
    "test_topic_changes.py": Own(1, 0, "its topics are deleted under a query of two replicas"),
    "test_web.py": Own(1, 0, "`up --web` as a process: what it prints, and its end"),
}

IN_DRILLS: Final = frozenset(
    {
        "test_container_shells.py",
        "test_data_directory.py",
        "test_history.py",
        "test_interrupts.py",
        "test_overload.py",
        "test_plain_topic.py",
        "test_prefix.py",
        "test_rehearse.py",
        "test_rehearse_copies.py",
        "test_rehearse_files.py",
        "test_rehearse_forms.py",
        "test_rehearse_shared.py",
        "test_shape.py",
        "test_spark_cluster.py",
        "test_sql_pairs.py",
        "test_state_movement.py",
        "test_tutorial.py",
    }
)
"""Files that start deployments in drills only, or on containers."""

DEPLOYMENTS_MAX: Final = 20
SESSIONS_MAX: Final = 15
"""Spark sessions of all files but the shared deployment's."""

STARTS: Final = re.compile(
    r"\b(?:StackThread|rehearse|running_up|Up|Nodes|start_spark)\("
    r"|\"slackwater_spark\.app\""
    r"|cli(?:\.app)?\", \"(?:up|rehearse|demo|backfill)\""
    r"|\[\"up\", |\"slackwater (?:up|rehearse)\""
)
"""How a test file starts a deployment, or a Spark session."""
USES_SHARED: Final = re.compile(r"\bshared: SharedDeployment\b")
