"""Several nodes on one machine, as processes: what experiments with failures start, and stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.controllers import controllers
from tests.support.nodes import Nodes
from tests.support.starting import make_topics

from slackwater.machine.broker import EmbeddedBroker


@asynccontextmanager
async def machines(
    folder: Path, names: Sequence[str], topics: Mapping[str, int]
) -> AsyncIterator[tuple[str, Nodes]]:
    """Run a broker with these topics (partitions by name), one controller, and these nodes.

    Yields:
        the broker's address, and the nodes.
    """
    with EmbeddedBroker(folder / "broker", runs_long=True) as broker:
        for topic, partitions in topics.items():
            make_topics(broker.bootstrap, [topic], partitions)
        async with controllers(folder, "a", relayed=False) as cluster:
            nodes = Nodes(folder, broker.bootstrap, cluster)
            try:
                for name in names:
                    nodes.start(name)
                yield broker.bootstrap, nodes
            finally:
                nodes.stop_all()
