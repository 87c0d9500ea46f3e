"""What runs, as statements see it: the queries in the controllers' record, under their own names.

Of a query that is being changed it is the latest generation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slackwater.cli.controls import Reach
from slackwater.control.applied import AppliedQuery
from slackwater.control.control_state import ControlState, Wanted
from slackwater.control.recorded import applied_queries, deployment_of
from slackwater.deployment.sharing import without_sharing
from slackwater.model.deployment import Deployment
from slackwater.model.names import Names, base_of, generation_of, latest_generation
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.registry import Registry


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a deployment runs. The functions are called when a statement needs what they return.

    ``names``: of a deployment without queries; others have them in the record.
    """

    reach: Callable[[], Reach]
    cluster: Callable[[], Cluster]
    names: Callable[[], Names]
    registry: Callable[[Names], Registry] | None
    data_dir: Path
    micro_batch: bool = False


@dataclass(frozen=True, slots=True)
class RunningDeployment:
    """``applied`` are the queries as recorded, by generation; ``deployment`` is as declared."""

    applied: Mapping[str, AppliedQuery]
    deployment: Deployment
    paused: frozenset[str] = frozenset()

    @classmethod
    def of(cls, recorded: ControlState) -> RunningDeployment:
        """Return what the record has."""
        applied = applied_queries(recorded)
        found = deployment_of(applied)
        names = dict.fromkeys(map(base_of, applied))
        latest = {name: latest_generation(name, applied) or name for name in names}
        queries = {
            name: replace(without_sharing(found.queries[of]), name=name)
            for name, of in latest.items()
        }
        paused = {
            name
            for name, of in latest.items()
            if recorded.queries[of].wanted == Wanted.PAUSED.value
        }
        return cls(applied, replace(found, queries=queries), frozenset(paused))

    def generation(self, query: str) -> int:
        """The latest generation of a query."""
        return generation_of(latest_generation(query, self.applied) or query)
