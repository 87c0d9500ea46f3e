"""A site with a Kafka of its own, and a centre, with a link between them that is cut (rule-37).

The same query runs at both: at the site over its own stream, at the centre over both streams. The
link is cut, and the site's processes die meanwhile. The centre answers each window tentatively, and
names the site's stream; the site answers exactly. After the cut all of the centre's answers are
exact: counts, minima and maxima equal those of what was sent.

Then the link is cut again, and the site loses its Kafka and its data directory. It starts again
with others, and both places say which answers may lack readings (trace-83).
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.integration.test_children import TOPIC, Sender
from tests.integration.test_plain_topic import Results
from tests.support.linked_broker import Link, linked_broker
from tests.support.starting import make_topics, started
from tests.support.waiting import eventually

from slackwater.codec.results import parse_time
from slackwater.deployment.parse import load_deployment
from slackwater.machine.broker import EmbeddedBroker
from slackwater.runtime.logs.cluster import Where, cluster_of
from slackwater.runtime.service.registry import Registry
from slackwater.stack.stack import StackOptions
from slackwater.stack.stack_thread import StackThread

pytestmark = [pytest.mark.slow]

PARTITIONS = 4
DEPLOYMENT = """\
apiVersion: slackwater/v1
sites:
  north: {{centre: "{centre}"{link}}}
streams:
  {streams}
queries:
  lab:
    from: [at-north, here]
    window: {{size: 1s}}
    aggregate: [count, min, max]
    bound: 4s
    replicas: 1
    children: sites
    mergers: 2
"""
STREAM = """\
{name}:
    site: {site}
    topic: {{name: lab-readings, format: json}}
    key: {{field: mote}}
    time: {{field: at, unit: us}}
    fields: [x]
    disorder: 500ms
    ahead: 1s
    expect_every: 1s
  """
Line = dict[str, Any]


def deployment_with(centre: str, link: str = "") -> str:
    """Return the file; ``link``: further fields of the site."""
    streams = [STREAM.format(name=n, site=s) for n, s in (("at-north", "north"), ("here", "h"))]
    return DEPLOYMENT.format(centre=centre, link=link, streams="".join(streams).rstrip())


@dataclass
class Place:
    """What runs at the site, or at the centre."""

    stack: StackThread
    sender: Sender
    results: Results

    @classmethod
    def start(
        cls,
        path: Path,
        folder: Path,
        where: Where,
        site: str | None,
        *,
        kafka_config: Path | None = None,
        reader: Where | None = None,
    ) -> Place:
        """``where`` is the Kafka that is sent to, and read unless ``reader`` is given."""
        options = StackOptions(
            path,
            load_deployment(path, site=site),
            folder,
            bootstrap=cluster_of(where).bootstrap,
            kafka_config=kafka_config,
            site=site,
        )
        stack = started(StackThread(options))
        return cls(stack, Sender(where, PARTITIONS), Results(reader or where, query="lab"))

    def rows(self, kind: str) -> dict[tuple[int, str], Line]:
        """Return the rows of a kind, by window and key; no stable one is there twice."""
        found: dict[tuple[int, str], Line] = {}
        for line in self.results.lines:
            if line["kind"] == kind:
                at = int(parse_time(line["window_start"]) // 1_000_000), line["key"]
                assert kind != "stable" or at not in found, f"{at} is answered twice"
                found[at] = line
        return found

    def boundaries(self, label: str, since_s: float) -> list[Line]:
        """Return the records that end the windows which begin from a moment on."""
        found = (line for line in self.results.lines if line.get("label") == label)
        return [line for line in found if parse_time(line["window_start"]) >= since_s * 1e6]

    def await_window(self, kind: str, until_s: float) -> None:
        """Wait until a window is answered that begins at this moment or later."""
        self.results.read_until(
            lambda: max((second for second, _ in self.rows(kind)), default=0) >= until_s,
            f"a {kind} answer of {until_s}",
        )

    def kill_hosts(self) -> None:
        """Kill all hosts, which start again."""
        hosts = [name for name in self.stack.pids() if name.startswith("host/")]
        assert hosts
        for name in hosts:
            assert self.stack.kill(name)

    def stop(self) -> None:
        """Stop all of it."""
        self.sender.stop()
        self.results.close()
        self.stack.stop()


@contextmanager
def running(
    path: Path, folder: Path, where: Where, site: str | None = None, **given: Any
) -> Iterator[Place]:
    """Run what a file has at a place; for the arguments see ``Place.start``."""
    place = Place.start(path, folder, where, site, **given)
    try:
        yield place
    finally:
        place.stop()


@dataclass
class Running:
    """The centre, the link, and who has sent at the site."""

    folder: Path
    centre: Place
    link: Link
    senders: list[Sender] = field(default_factory=list)
    """One for each start of the site."""

    @property
    def path(self) -> Path:
        return self.folder / "deployment.yaml"

    @contextmanager
    def site(self, folder: str) -> Iterator[Place]:
        """Run the site with a broker and a data directory of its own, which are then gone."""
        with EmbeddedBroker(self.folder / folder) as own:
            make_topics(own.bootstrap, [TOPIC], PARTITIONS)
            data = self.folder / f"data-{folder}"
            with running(self.path, data, own.bootstrap, "north") as north:
                self.senders.append(north.sender)
                yield north

    @property
    def begun(self) -> set[int]:
        """The seconds in which a sender at the site began."""
        return {min(second for second, _ in sender.sent) for sender in self.senders}

    def sent(self) -> dict[tuple[int, str], list[float]]:
        """Return what has been sent at both places, by second and key."""
        found: dict[tuple[int, str], list[float]] = defaultdict(list)
        for sender in (self.centre.sender, *self.senders):
            for at, of in list(sender.sent.items()):  # a copy: its thread may send meanwhile
                found[at] += of
        return found


@pytest.fixture(name="both", scope="module")
def _both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("sites")
    with linked_broker(folder / "centre") as (broker, (link,)):
        make_topics(broker.bootstrap, [TOPIC], PARTITIONS)
        path = folder / "deployment.yaml"
        path.write_text(deployment_with(link.address))
        with running(path, folder / "data-centre", broker.bootstrap) as centre:
            yield Running(folder, centre, link)


def test_a_site_that_is_cut_off_and_then_loses_its_kafka(both: Running) -> None:
    with both.site("first") as north:
        is_answered_while_it_is_cut_off(both, north)
        both.centre.await_window("stable", time.time() + 1)
        both.link.cut()
        north.await_window("stable", time.time() + 3)
    lost_at = time.time()
    both.link.heal()
    with both.site("second") as north:
        again = time.time()
        for place in (both.centre, north):
            place.await_window("stable", again + 3)
        north.results.read_until(
            lambda: any(not line.get("lost") for line in north.rows("stable").values()),
            "a window that lacks nothing",
        )
    tells_what_is_lost(both, lost_at)


def is_answered_while_it_is_cut_off(both: Running, north: Place) -> None:
    """rule-37: tentative at the centre, exact at the site, and exact afterwards."""
    centre, link = both.centre, both.link
    begun = time.time()
    for place in (centre, north):
        place.await_window("stable", begun + 2)
    definitions = [Registry(of.stack.stack.transport).queries()["lab"] for of in (centre, north)]
    assert definitions[0].e0_us == definitions[1].e0_us

    link.cut()
    cut_at = time.time()
    centre.await_window("tentative", cut_at + 2)
    north.await_window("stable", cut_at + 4)
    north.kill_hosts()
    north.await_window("stable", time.time() + 2)
    centre.await_window("tentative", time.time() + 2)
    lacking = centre.boundaries("tentative", cut_at + 2)
    assert lacking
    assert {tuple(line["missing"]) for line in lacking} == {("at-north",)}

    link.heal()
    healed_at = time.time()
    for place in (centre, north):
        place.await_window("stable", healed_at + 3)
    eventually(lambda: not centre.results.lines[-1].get("missing"), "nothing is missing")
    stable, sent = centre.rows("stable"), both.sent()
    seconds = {second for second, _ in stable}
    answered = [second for second in sorted(seconds) if begun + 1 <= second <= healed_at + 2]
    assert answered == list(range(answered[0], answered[-1] + 1)), "a window has no stable answer"
    assert answered[-1] - answered[0] >= 8
    for second in answered:
        for key in {key for at, key in sent if at == second}:
            figures = stable[second, key]["fields"]["x"]
            of = sent[second, key]
            assert figures == {"count": len(of), "min": min(of), "max": max(of)}, (second, key)


def tells_what_is_lost(both: Running, lost_at: float) -> None:
    """trace-83. Readings that were accepted and not sent are gone with the disk of the site.

    Each row of which readings may be lost says so, and no other one; all others are exact. Not
    compared are the seconds in which a sender began: its first readings wait for a connection, and
    may be late.
    """
    stable, sent, begun = both.centre.rows("stable"), both.sent(), both.begun
    windows = sorted({second for second, _ in stable})
    assert windows == list(range(windows[0], windows[-1] + 1)), "a window has no stable answer"
    lost = {second for second, _ in stable if stable[second, _].get("lost")}
    assert {tuple(stable[at]["lost"]) for at in stable if at[0] in lost} == {("at-north",)}
    assert windows[0] + 1 < min(lost) < lost_at < max(lost)
    assert lost == set(range(min(lost), max(lost) + 1))
    lacking = set()
    for second in [at for at in windows[2:-1] if not {at, at - 1} & begun]:
        for key in {key for at, key in sent if at == second}:
            of = sent[second, key]
            figures = stable[second, key]["fields"]["x"]
            if figures != {"count": len(of), "min": min(of), "max": max(of)}:
                lacking.add(second)
    assert lacking, "nothing was lost"
    assert lacking <= lost
