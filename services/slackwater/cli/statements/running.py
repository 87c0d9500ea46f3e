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
from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sharing import without_sharing
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError, EnvironmentProblem
from slackwater.model.names import Names, base_of, generation_of, latest_generation
from slackwater.runtime.logs.cluster import Cluster
from slackwater.runtime.service.datadir import is_running, read_run
from slackwater.runtime.service.registry import Registry


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a deployment runs. The functions are called when a statement needs what they return.

    ``names``: of a deployment without queries; others have them in the record. ``file``: what the
    file of the running `slackwater up` declares; None if there is none.
    """

    reach: Callable[[], Reach]
    cluster: Callable[[], Cluster]
    names: Callable[[], Names]
    registry: Callable[[Names], Registry] | None
    data_dir: Path
    file: Callable[[], Deployment | None] = lambda: None
    micro_batch: bool = False


@dataclass(frozen=True, slots=True)
class RunningDeployment:
    """``applied`` are the queries as recorded, by generation; ``deployment`` is as declared."""

    applied: Mapping[str, AppliedQuery]
    deployment: Deployment
    paused: frozenset[str] = frozenset()

    @classmethod
    def of(cls, recorded: ControlState, file: Deployment | None = None) -> RunningDeployment:
        """Return what the record has, with the streams of ``file`` that no query reads yet.

        `slackwater up` runs their proxies, and the record has the streams of queries only.
        """
        applied = applied_queries(recorded)
        found = deployment_of(applied)
        if file is not None:
            http = found.http if found.is_posted else file.http
            found = replace(found, streams={**file.streams, **found.streams}, http=http)
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


def file_of_up(data_dir: Path) -> Deployment | None:
    """Return what the file of the `slackwater up` that runs from a directory declares.

    None if none runs, or if its file cannot be read any more.
    """
    try:
        run = read_run(data_dir)
        if run is None or not is_running(data_dir):
            return None
        return load_deployment(Path(run.deployment), site=run.site)
    except (DeploymentError, EnvironmentProblem):
        return None
