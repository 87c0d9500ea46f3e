"""Caches the registry's contents for all fragments of a host.

A request waits until its query is registered, which may take long, so callers run each request in
a thread of its own. The results are shared. The definition of a registered query does not change,
except for its state (trace-27).

With ``clock: wall`` the fragments of a query share its normal times, until the last of them ends.
With ``clock: data`` each fragment has a clock of its own, which starts with the fragment (rule-12).

Orderers that compute the same buckets from the same logs also share these buckets through this
module.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable

from slackwater.host.earlier import EarlierGenerations
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.protocols.dpc.sunion.operators import BucketPiece
from slackwater.protocols.dpc.sunion.shared_buckets import SharedBuckets
from slackwater.runtime.service.normaltime import NormalTime
from slackwater.runtime.service.placements import Placements
from slackwater.runtime.service.registry import QueryDefinition, Registry


class RegistryView:
    """Registry contents shared by a host's fragments. For any thread."""

    def __init__(
        self, registry: Registry, deployment: Deployment, placements: Placements | None = None
    ) -> None:
        self.registry = registry
        self._placements = placements
        self.deployment = deployment
        self._definitions: dict[str, QueryDefinition] = {}
        self._times: dict[str, NormalTime] = {}
        self._users: Counter[NormalTime] = Counter()
        self._earlier: dict[str, EarlierGenerations] = {}
        self._earlier_users: Counter[str] = Counter()
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._buckets: dict[Hashable, SharedBuckets[list[BucketPiece]]] = {}
        self._buckets_lock = threading.Lock()

    def query(self, name: str) -> QueryDefinition:
        """Return the definition of a query as it was first read; waits until it is registered."""
        with self._locks[name]:
            if name not in self._definitions:
                self._definitions[name] = self.registry.wait_for_query(name)
            return self._definitions[name]

    def present_query(self, name: str) -> QueryDefinition:
        """Return the definition of a query with its present state; waits until it is registered."""
        with self._locks[name]:
            found = self.registry.all_queries().get(name)
            if found is not None:
                self._definitions[name] = found
        return self.query(name)

    def deployment_of(self, name: str) -> Deployment:
        """Return what a query's fragments need: the deployment file, or what is registered with it.

        A query that was applied at run time need not be in the file.
        """
        if name in self.deployment.queries:
            return self.deployment
        return self.query(name).deployment or self.deployment

    @property
    def has_recorded_placements(self) -> bool:
        """Whether placement numbers are those of the replicated record."""
        return self._placements is not None

    def placement(self, root: str, above: Callable[[], int]) -> int:
        """Return the placement number of a root that starts.

        On a node the number is that of the replicated record, also after a restart. Otherwise each
        start takes a greater one. ``above``: see ``Registry.take_placement``; called if needed.
        """
        if self._placements is None:
            return self.registry.take_placement(root, above())
        return self._placements.of(root)

    def recorded_placement(self, fragment: str) -> int:
        """The placement number in the replicated record; -1 if there is no such record."""
        return -1 if self._placements is None else self._placements.of(fragment)

    def partitions(self, stream: str, at_least: int = 1) -> int:
        """Return the number of a stream's source logs; waits until its proxy has recorded it."""
        return self.registry.wait_for_partitions(stream, at_least=at_least)

    def readers(self, children_of: str) -> list[QuerySpec]:
        """Return the queries that read this query's children."""
        return self.registry.wait_for_readers(children_of, self.deployment.queries.values())

    @property
    def follows_data(self) -> bool:
        """Whether the event clock follows the data."""
        return self.deployment.clock == "data"

    def normal_time(self, spec: QuerySpec, *, awaits_begin: bool = False) -> NormalTime:
        """Return the query's normal times, for a fragment that starts; ``leave_time`` at its end.

        Fragments of one query share them unless the event clock follows the data. ``awaits_begin``
        is that of its definition.
        """
        deployment = self.deployment_of(spec.name)
        with self._locks[spec.name]:
            time = self._times.get(spec.name)
            if time is None:
                time = NormalTime(
                    *(self.registry, deployment, spec),
                    awaits_begin=awaits_begin,
                )
                if not self.follows_data:
                    self._times[spec.name] = time
            self._users[time] += 1
            return time

    def leave_time(self, query: str, time: NormalTime) -> None:
        """Remove one user of a query's normal times, a fragment that has ended."""
        with self._locks[query]:
            self._users[time] -= 1
            if self._users[time]:
                return
            del self._users[time]
            if self._times.get(query) is time:
                del self._times[query]
            time.close()

    def earlier(self, query: str) -> EarlierGenerations:
        """Return whether earlier generations of a query have ended; ``leave_earlier`` at the end.

        The fragments of a query share it.
        """
        with self._locks[query]:
            found = self._earlier.get(query)
            if found is None:
                found = self._earlier[query] = EarlierGenerations(self.registry, query)
            self._earlier_users[query] += 1
            return found

    def leave_earlier(self, query: str) -> None:
        """Remove one user of ``earlier``, a fragment that has ended."""
        with self._locks[query]:
            self._earlier_users[query] -= 1
            if not self._earlier_users[query]:
                del self._earlier_users[query]
                self._earlier.pop(query).close()

    def join_buckets(self, same: Hashable) -> SharedBuckets[list[BucketPiece]]:
        """Return the buckets shared by all orderers with an equal key; adds one user.

        ``same`` identifies the logs and operators from which the buckets are computed.
        """
        with self._buckets_lock:
            shared = self._buckets.setdefault(same, SharedBuckets())
            shared.join()
            return shared

    def leave_buckets(self, same: Hashable) -> None:
        """Remove one user, an orderer that has ended."""
        with self._buckets_lock:
            self._buckets[same].leave()
            if not self._buckets[same].users:
                del self._buckets[same]
