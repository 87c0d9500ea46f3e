"""Sites with a Kafka of their own: the section ``sites``, and what runs at each place. Pure.

One file describes the centre and its sites; each place runs its own *view* of it, a deployment like
any other. At a site these are its streams, and of each query that reads them the children that they
are in, with mergers, roots for the site's own answers, and an uplink. At the centre it is the rest:
a child that a site has is *remote*. Its merged panes come from the site, and nothing else.

So a site has controllers, a registry and answers of its own, and needs the centre for its first
start only (decision 230). A query with ``at`` is at its site as a whole, as if the file had nothing
else; the centre has nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from slackwater.deployment.findings import Findings
from slackwater.deployment.listening import parse_address
from slackwater.deployment.shapes import SITES, QueryShape, SiteShape
from slackwater.deployment.shaping import did_you_mean
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import (
    Deployment,
    QuerySpec,
    StreamSpec,
)
from slackwater.model.errors import UsageError
from slackwater.model.http import HTTP_DEFAULT
from slackwater.model.names import some_of
from slackwater.model.sites import SiteSpec, UplinkSpec

ADVICE: Final = "is read at site {site}, which has a Kafka of its own"


def check_sites(
    shapes: Mapping[str, SiteShape],
    streams: Mapping[str, StreamSpec],
    findings: Findings,
) -> dict[str, SiteSpec]:
    """Return the sites with a Kafka of their own; errors are added to ``findings``."""
    found: dict[str, SiteSpec] = {}
    of_streams = {stream.site for stream in streams.values()} - {""}
    for name, shape in shapes.items():
        place: Place = ("sites", name)
        for field, address in (("centre", shape.centre), ("bootstrap", shape.bootstrap)):
            try:
                for each in () if address is None else address.split(","):
                    parse_address(each)
            except ValueError as error:
                findings.error((*place, field), str(error))
        if shape.bootstrap is not None and shape.bootstrap == shape.centre:
            findings.error((*place, "bootstrap"), "is the centre's Kafka: a site has its own")
        if name not in of_streams:
            near = get_close_matches(name, of_streams, 1)
            meant = f"; a stream has site: {near[0]}" if near else ""
            findings.error(place, f"no stream has site: {name}{meant}")
        found[name] = SiteSpec(name, shape.centre, shape.bootstrap, shape.kafka_config)
    for name, stream in streams.items():
        if stream.site not in found:
            if near := get_close_matches(stream.site, found, 1):
                findings.warn(
                    ("streams", name, "site"),
                    f"{stream.site} is not in sites, so it is a label of nodes; {near[0]} is",
                )
        elif stream.learns_gaps:
            findings.error(
                ("streams", name, "expect_every"),
                f"auto: it {ADVICE.format(site=stream.site)}, and the centre does not learn what"
                " is learned there: give a duration",
            )
    return found


def check_children(
    shape: QueryShape,
    streams: Mapping[str, StreamSpec],
    sites: Mapping[str, SiteSpec],
    place: Place,
    findings: Findings,
) -> None:
    """Check a query that reads streams of sites with a Kafka of their own."""
    remote = [s for s in shape.from_ if s in streams and streams[s].site in sites]
    if not remote:
        return
    why = f"{remote[0]} {ADVICE.format(site=streams[remote[0]].site)}"
    if shape.join is not None:
        findings.error((*place, "join"), f"{why}: one orderer must read both streams")
        return
    if isinstance(shape.children, Mapping):
        _check_named(shape.children, streams, sites, place, findings)
    elif shape.children != SITES:
        at = (*place, "children") if "children" in shape.model_fields_set else (*place, "from")
        findings.error(at, f"{why}, and no child can be in two: write `children: {SITES}`")
    if not shape.mergers:
        at = (*place, "mergers") if "mergers" in shape.model_fields_set else (*place, "from")
        findings.error(at, f"{why}, from which merged panes come: write `mergers: 2`")
    for site in dict.fromkeys(streams[source].site for source in remote):
        if sites[site].centre is None:
            reason = f"is required: query {place[-1]} has a child at {site}, which sends its panes"
            findings.error(("sites", site, "centre"), reason)


def _check_named(
    children: Mapping[str, Sequence[str]],
    streams: Mapping[str, StreamSpec],
    sites: Mapping[str, SiteSpec],
    place: Place,
    findings: Findings,
) -> None:
    """Check that each child has the streams of one place, and of a site whole ones."""
    for name, logs in children.items():
        places: dict[str, str] = {}
        for number, log in enumerate(logs):
            source, _, part = log.partition("/")
            site = streams[source].site if source in streams else ""
            places.setdefault(site if site in sites else "", source)
            if site in sites and part:
                reason = (
                    f"{source} is read at site {site}, where its logs are counted: write {source}"
                )
                findings.error((*place, "children", name, number), reason)
        if len(places) > 1:
            (one, of), (other, of_other) = [*places.items()][:2]
            where, there = (f"at site {site}" if site else "at the centre" for site in (one, other))
            reason = f"no child can be at two places: {of} is read {where}, {of_other} {there}"
            findings.error((*place, "children", name), reason)


def check_at(
    shape: QueryShape,
    streams: Mapping[str, StreamSpec],
    queries: Mapping[str, str],
    sites: Mapping[str, SiteSpec],
    place: Place,
    findings: Findings,
) -> None:
    """Check that a query reads nothing of another place; ``queries``: by name, where they are."""
    here = shape.at or ""
    if here and here not in sites:
        why = f"there is no site {here} with a Kafka of its own{did_you_mean(here, sites)}"
        findings.error((*place, "at"), why)
        return
    for number, source in enumerate(shape.from_):
        if source in queries and queries[source] != here:
            there = queries[source]
            where = f"at site {there}" if there else "at the centre"
            advice = f": write `at: {there}`" if there and not here else ""
            findings.error((*place, "from", number), f"the results of {source} are {where}{advice}")
        elif here and source in streams and streams[source].site != here:
            of = streams[source].site
            where = f"at site {of}" if of in sites else "at the centre"
            reason = f"{source} is read {where}, and a query at {here} reads what is at {here}"
            findings.error((*place, "from", number), reason)


def with_sites(
    queries: Mapping[str, QuerySpec],
    streams: Mapping[str, StreamSpec],
    sites: Mapping[str, SiteSpec],
) -> dict[str, QuerySpec]:
    """Return the queries, with the site of each child that has a Kafka of its own."""
    found = dict(queries)
    for name, query in queries.items():
        if query.at:
            continue
        if any(source in streams and streams[source].site in sites for source in query.sources):
            of = (streams[logs[0].partition("/")[0]].site for _, logs in query.child_groups)
            found[name] = replace(query, sites=tuple(s if s in sites else "" for s in of))
    return found


def view_of(deployment: Deployment, site: str | None = None) -> Deployment:
    """Return what runs at a site, or, without one, at the centre.

    Raises:
        UsageError: the file has no such site, or nothing at the centre.
    """
    if site is None:
        return _centre(deployment) if deployment.sites else deployment
    if site not in deployment.sites:
        known = some_of([*deployment.sites]) or "none"
        raise UsageError(f"there is no site {site} with a Kafka of its own; there are: {known}")
    return _at(deployment, deployment.sites[site])


def _centre(deployment: Deployment) -> Deployment:
    streams = {
        name: replace(stream, topic=None, mqtt=None, http=None, elsewhere=True)
        if stream.site in deployment.sites
        else stream
        for name, stream in deployment.streams.items()
    }
    queries = {name: query for name, query in deployment.queries.items() if not query.at}
    if not queries:
        names = some_of(list(dict.fromkeys(query.at for query in deployment.queries.values())))
        advice = "give --site, if the command has it"
        raise UsageError(f"nothing runs at the centre: all queries are at {names}; {advice}")
    return _with_http(replace(deployment, streams=streams, queries=queries, sites={}))


def _at(deployment: Deployment, site: SiteSpec) -> Deployment:
    streams = {n: stream for n, stream in deployment.streams.items() if stream.site == site.name}
    queries = {
        name: replace(query, at="") if query.at else _children_at(query, site)
        for name, query in deployment.queries.items()
        if site.name in (query.at, *query.sites)
    }
    return _with_http(replace(deployment, streams=streams, queries=queries, sites={}))


def _children_at(query: QuerySpec, site: SiteSpec) -> QuerySpec:
    """Return the query at a site: its streams only, in the children that it has at the centre.

    Alerts are for all streams, so the centre has them.
    """
    assert site.centre is not None, "it has a child there, so it has been checked"
    children = tuple(child for child, of in enumerate(query.sites) if of == site.name)
    groups = tuple(query.child_groups[child] for child in children)
    sources = {source for _, of in groups for source in of}
    return replace(
        query,
        sources=tuple(source for source in query.sources if source in sources),
        children=len(groups),
        child_groups=groups if len(groups) > 1 else (),
        sites=(),
        alerts=(),
        uplink=UplinkSpec(site.name, site.centre, children, site.kafka_config),
    )


def _with_http(deployment: Deployment) -> Deployment:
    return deployment if deployment.is_posted else replace(deployment, http=HTTP_DEFAULT)


def check_all_here(deployment: Deployment, path: Path, why: str) -> None:
    """Raise ``UsageError`` if any stream is at a site; ``why`` not: "a rehearsal has one"."""
    remote = [name for name, stream in deployment.streams.items() if stream.elsewhere]
    if remote:
        site = deployment.streams[remote[0]].site
        raise UsageError(
            f"{path}: stream {remote[0]} is at site {site}, which has a Kafka of its own, and"
            f" {why}: use a file without {site} in sites"
        )


def check_here(stream: StreamSpec) -> None:
    """Raise ``UsageError`` if the stream is read elsewhere."""
    if stream.elsewhere:
        raise UsageError(
            f"stream {stream.name} {ADVICE.format(site=stream.site)}: send its readings there"
        )


def why_other(at_site: QuerySpec, at_centre: QuerySpec) -> str:
    """Return how a query at a site differs from the centre's so that panes do not fit; or ''."""
    uplink = at_site.uplink
    assert uplink is not None, "it has an uplink"
    of_site = [child for child, site in enumerate(at_centre.sites) if site == uplink.site]
    if of_site != [*uplink.children]:
        return f"other children are those of site {uplink.site}"
    here = at_site.child_groups or (("", at_site.sources),)
    for (_, sources), child in zip(here, uplink.children, strict=True):
        if {*sources} != {*at_centre.child_groups[child][1]}:
            return "its streams differ"
    fields = ("where", "select", "window", "aggregate", "of_fields", "parts", "replicas")
    differing = [name for name in fields if getattr(at_site, name) != getattr(at_centre, name)]
    return f"{' and '.join(differing)} differ" if differing else ""
