"""Where a query starts at a site: where it starts at the centre, or where the centre lacks it.

The first start of a site is that of the centre, so that the panes of both fit. A site whose Kafka
has been lost with its disk registers the query again, and knows of no earlier life. The centre
does: it has panes of this site. What had been sent is there; what had not is nowhere, with readings
that the site's proxies had accepted. To begin at the centre's start, or at the present, would count
these readings as never sent. So the query begins behind what the centre has, and all that may have
been lost is reported as lost, at both places (rule-37, trace-83).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

from slackwater.codec.results import format_time
from slackwater.deployment.sites import why_other
from slackwater.model.deployment import QuerySpec
from slackwater.model.errors import EnvironmentProblem, SlackwaterError
from slackwater.model.limits import NEVER
from slackwater.model.names import Names
from slackwater.model.sites import UplinkSpec
from slackwater.primitives.windows import Grid
from slackwater.registration.site_logs import last_pane
from slackwater.runtime.logs.cluster import find_centre
from slackwater.runtime.logs.kafka import KafkaTransport
from slackwater.runtime.logs.topics import partition_counts
from slackwater.runtime.logs.transport import Transport
from slackwater.runtime.service.registry import QueryDefinition, Registry
from slackwater.sessions.uplink import complete_to_of


class StartTimes(NamedTuple):
    """The start E0 of a query, the width of its buckets, and up to where readings may be lost, us.

    ``lost_until_us`` is None unless the Kafka of its site has been lost.
    """

    start_us: int
    w_us: int
    lost_until_us: int | None = None


def start_at_site(query: QuerySpec, names: Names, loss_us: int) -> StartTimes:
    """Return where a query that is not registered at its site starts.

    Args:
        query: a query at a site, with its uplink.
        names: the names of topics, the same at both places.
        loss_us: the largest event time that a reading may have which the site has accepted.

    Raises:
        EnvironmentProblem: the centre has not registered it, or does not answer.
        UsageError: the file with the credentials for it is invalid.
    """
    uplink = query.uplink
    assert uplink is not None, "it is at a site"
    centre = KafkaTransport(find_centre(uplink), names)
    waits = f"query {query.name} starts when the centre has registered it: {uplink.centre}"
    try:
        found = _registered(query.name, centre)
        if found is None or found.state == "deleted":
            raise EnvironmentProblem(f"{waits} has not")
        if why := why_other(query, found.spec):
            raise EnvironmentProblem(
                f"query {query.name} is another one at the centre: {why}; start both with one file"
            )
        arrived = _arrived(query, uplink, centre)
    except EnvironmentProblem:
        raise
    except SlackwaterError as error:
        raise EnvironmentProblem(f"{waits} does not answer: {error}") from error
    return start_behind(arrived, found, loss_us)


def start_behind(
    arrived: Sequence[int | None], at_centre: QueryDefinition, loss_us: int
) -> StartTimes:
    """Return where a site begins a query of which the centre has panes, or none.

    ``arrived`` has, of each part and child, up to where the centre has all panes: None if it has
    never had one, NEVER if that is not known any more. Pure.
    """
    centre_us, w_us, spec = at_centre.e0_us, at_centre.w_us, at_centre.spec
    if all(end is None for end in arrived):
        return StartTimes(centre_us, w_us)
    start_us = max(centre_us, min(NEVER if end is None else end for end in arrived))
    grid = Grid(w_us, spec.units(w_us), spec.cut_windows)
    return StartTimes(start_us, w_us, grid.pane_end(max(loss_us, start_us)))


def why_lost(query: QuerySpec, begun: StartTimes) -> str:
    """Return what is said of a site whose Kafka has been lost."""
    assert query.uplink is not None, "it is at a site"
    assert begun.lost_until_us is not None, "it has been lost"
    since, until = format_time(begun.start_us), format_time(begun.lost_until_us)
    return (
        f"the centre has panes of query {query.name} from site {query.uplink.site}, whose Kafka"
        f" has none: it has been lost. The query goes on from {since}, and its answers report"
        f" readings before {until} as lost"
    )


def _registered(name: str, centre: KafkaTransport) -> QueryDefinition | None:
    if not partition_counts(centre.cluster, {centre.names.registry}):
        return None
    return Registry(centre).all_queries().get(name)


def _arrived(query: QuerySpec, uplink: UplinkSpec, centre: Transport) -> list[int | None]:
    """Return up to where the centre has panes of each part and child; see ``start_behind``."""
    of = product(range(query.parts), uplink.children)
    logs = [(centre.names.merged(query.name, part), child) for part, child in of]
    ends = centre.end_offsets(logs)
    found: Iterable[int | None] = (
        _complete_to(centre, log, ends[log]) if ends[log] else None for log in logs
    )
    return [*found]


def _complete_to(centre: Transport, log: tuple[str, int], end: int) -> int:
    last = last_pane(centre, log, end)
    return NEVER if last is None else complete_to_of(last)
