"""Nodes on one machine under load: what both experiments of section 5 start, and stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from bench.live import Feeder
from tests.support.controllers import controllers
from tests.support.nodes import Nodes
from tests.support.starting import make_topics

from slackwater.machine.broker import EmbeddedBroker


@asynccontextmanager
async def under_load(
    folder: Path, names: Sequence[str], stream: str, per_s: int
) -> AsyncIterator[tuple[Nodes, Feeder]]:
    """Run a broker, one controller, these nodes, and a sender of so many readings a second."""
    with EmbeddedBroker(folder / "broker") as broker:
        make_topics(broker.bootstrap, [f"in-{stream}"])
        async with controllers(folder, "a", relayed=False) as cluster:
            nodes = Nodes(folder, broker.bootstrap, cluster)
            feeder = Feeder(broker.bootstrap, per_s, streams=(stream,))
            feeder.start()
            try:
                for name in names:
                    nodes.start(name)
                yield nodes, feeder
            finally:
                nodes.stop_all()
                feeder.stop()
