"""Registry contents of a host, read once for all its fragments.

Reading may take long, since it waits for a query that is not registered yet. So each request runs
in a thread of its own, and the result is shared. A definition never changes under its
name (trace-27).

Normal times are shared by the fragments of a query where they follow the wall clock. With
``clock: data`` each fragment has a clock of its own, which starts anew with it (rule-12).

Orderers that make the same buckets of the same logs share them through this module, too.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable

from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.protocols.dpc.sunion.operators import BucketPiece
from slackwater.protocols.dpc.sunion.shared_buckets import SharedBuckets
from slackwater.runtime.service.normaltime import NormalTime
from slackwater.runtime.service.registry import QueryDefinition, Registry


class RegistryView:
    """Registry contents shared by a host's fragments. For any thread."""

    def __init__(self, registry: Registry, deployment: Deployment) -> None:
        self.registry = registry
        self.deployment = deployment
        self._definitions: dict[str, QueryDefinition] = {}
        self._times: dict[str, NormalTime] = {}
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._buckets: dict[Hashable, SharedBuckets[list[BucketPiece]]] = {}
        self._buckets_lock = threading.Lock()

    def query(self, name: str) -> QueryDefinition:
        """The definition of this query, as soon as there is one."""
        with self._locks[name]:
            if name not in self._definitions:
                self._definitions[name] = self.registry.wait_for_query(name)
            return self._definitions[name]

    @property
    def follows_data(self) -> bool:
        """Whether the event clock follows the data."""
        return self.deployment.clock == "data"

    def normal_time(self, spec: QuerySpec) -> NormalTime:
        """When the event times of the query are due, for a fragment that begins."""
        if self.follows_data:
            return NormalTime(self.registry, self.deployment, spec)
        with self._locks[spec.name]:
            if spec.name not in self._times:
                self._times[spec.name] = NormalTime(self.registry, self.deployment, spec)
            return self._times[spec.name]

    def join_buckets(self, same: Hashable) -> SharedBuckets[list[BucketPiece]]:
        """For one more orderer, with all for which ``same`` is equal: logs and operators."""
        with self._buckets_lock:
            shared = self._buckets.setdefault(same, SharedBuckets())
            shared.join()
            return shared

    def leave_buckets(self, same: Hashable) -> None:
        """It has ended."""
        with self._buckets_lock:
            self._buckets[same].leave()
            if not self._buckets[same].users:
                del self._buckets[same]
