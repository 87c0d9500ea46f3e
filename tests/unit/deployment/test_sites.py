"""The section ``sites``: what runs at each place, and which files are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from slackwater.cli.ingest import check_stream
from slackwater.control.generations import why_no_change
from slackwater.deployment.children import planned
from slackwater.deployment.fragments import fragment_names, seen_of, sources_of, stages
from slackwater.deployment.parse import load_deployment, parse_deployment, site_of
from slackwater.deployment.sharing import share
from slackwater.deployment.sites import check_all_here, view_of, why_other
from slackwater.deployment.stored import read_stored, to_text
from slackwater.model.deployment import Deployment, QuerySpec
from slackwater.model.errors import DeploymentError, UsageError
from slackwater.model.sites import UplinkSpec
from slackwater.registration.topics import topic_specs
from slackwater.runtime.security.acl import rules
from slackwater.runtime.security.credentials import Role

FILE = """\
apiVersion: slackwater/v1
sites:
  north: {centre: "kafka.centre:9092", bootstrap: "10.1.0.1:9092"}
  west: {centre: "kafka.centre:9092"}
streams:
  a: {key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 1s, site: north}
  b: {key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 2s, site: hall}
  c:
    topic: {name: c-readings, format: json}
    key: {field: k}
    time: {field: t, unit: s}
    fields: [x]
    expect_every: 5s
    site: west
  d: {key: {column: k}, time: {column: t, unit: s}, fields: [x], disorder: 1s, site: north}
queries:
  q:
    from: [a, b, c, d]
    window: {size: 10s}
    aggregate: [avg]
    bound: 4s
    children: sites
    mergers: 2
  here: {from: [b], window: {size: 10s}, aggregate: [max], bound: 4s}
"""


def parsed(text: str = FILE, site: str | None = None) -> Deployment:
    return parse_deployment(text, "f.yaml", site=site).deployment


def test_the_centre_has_a_remote_child_for_each_site() -> None:
    centre = parsed()
    q = centre.queries["q"]
    assert (q.children, q.sites) == (3, ("north", "", "west"))
    assert q.remote_sources == {"a", "c", "d"}
    assert [planned(centre, q).streams_of(child) for child in range(3)] == [
        ("a", "d"),
        ("b",),
        ("c",),
    ]
    of_q = [name for name in fragment_names(centre) if "/q." in name]
    assert of_q == [
        *("orderer/q.1.a", "orderer/q.1.b", "aggregator/q.1.a", "aggregator/q.1.b"),
        *("merger/q.1.a", "merger/q.1.b", "root/q.0.a", "root/q.0.b"),
    ]
    assert [name for name in fragment_names(centre) if name.startswith("proxy/")] == ["proxy/b"]
    assert all(stages(q)), "no stage is empty"
    assert sources_of(centre, {}) == {"a": (), "b": ("b",), "c": (), "d": ()}
    assert centre.lateness_us(q) == 5_000_000, "that of all streams"


def test_a_site_has_its_streams_in_one_child_and_an_uplink() -> None:
    north = parsed(site="north")
    assert [*north.streams] == ["a", "d"]
    assert [*north.queries] == ["q"], "it reads nothing of the other query"
    q = north.queries["q"]
    assert (q.sources, q.children, q.sites, q.child_groups) == (("a", "d"), 1, (), ())
    assert q.uplink == UplinkSpec("north", "kafka.centre:9092", (0,))
    assert parsed(site="west").queries["q"].uplink == UplinkSpec("west", "kafka.centre:9092", (2,))
    assert [name for name in fragment_names(north) if name.startswith(("uplink", "root"))] == [
        *("uplink/q.0.a", "uplink/q.0.b", "root/q.0.a", "root/q.0.b"),
    ]
    assert stages(q) == stages(replace(q, uplink=None)), "nobody there waits for an uplink"


NAMED = FILE.replace("children: sites", "children: {x: [d], y: [b], z: [a], w: [c]}")


def test_a_site_has_several_children_if_they_are_named() -> None:
    centre, north = parsed(NAMED), parsed(NAMED, "north")
    assert (centre.queries["q"].children, centre.queries["q"].sites) == (
        4,
        ("north", "", "north", "west"),
    )
    q = north.queries["q"]
    assert q.uplink == UplinkSpec("north", "kafka.centre:9092", (0, 2))
    assert (q.children, q.child_groups, q.sources) == (
        2,
        (("x", ("d",)), ("z", ("a",))),
        ("a", "d"),
    )
    assert [planned(north, q).streams_of(child) for child in (0, 1)] == [("d",), ("a",)]
    assert [name for name in fragment_names(north) if name.startswith("merger")] == [
        f"merger/q.{child}.{copy}" for child in (0, 1) for copy in "ab"
    ]
    assert why_other(q, centre.queries["q"]) == ""
    other = NAMED.replace("x: [d], y: [b], z: [a]", "x: [a], y: [b], z: [d]")
    assert why_other(q, parsed(other).queries["q"]) == "its streams differ"
    assert "other children" in why_other(q, parsed().queries["q"])
    assert QuerySpec.from_json(q.to_json()) == q
    before = q.to_json() | {"uplink": {"site": "north", "centre": "k:1", "child": 3}}
    assert QuerySpec.from_json(before).uplink == UplinkSpec("north", "k:1", (3,))


def test_a_site_has_a_file_with_the_credentials_of_its_link() -> None:
    text = FILE.replace('10.1.0.1:9092"}', '10.1.0.1:9092", kafka_config: /etc/link/}')
    north = parsed(text, site="north")
    assert north.queries["q"].uplink == UplinkSpec("north", "kafka.centre:9092", (0,), "/etc/link/")
    assert QuerySpec.from_json(north.queries["q"].to_json()) == north.queries["q"]
    assert parsed(text, site="west").queries["q"].uplink == UplinkSpec(
        "west", "kafka.centre:9092", (2,)
    )


def test_an_uplink_may_write_merged_panes_of_queries_with_children_at_sites_alone() -> None:
    found = rules(Role.UPLINK, parsed())
    may = {(rule.name, rule.pattern): set(rule.operations) for rule in found}
    assert may == {
        ("sw.registry", "literal"): {"Describe", "Read"},
        ("slackwater-assigned", "literal"): {"Describe", "Read"},
        ("sw.merged.q.0", "literal"): {"Describe", "Read", "Write"},
        ("sw.merged.q.g", "prefixed"): {"Describe", "Read", "Write"},
    }


AT_NORTH = """\
  own: {at: north, from: [a, d], join: {left: a, right: d, within: 1s}, bound: 4s}
  hourly: {at: north, from: [a], window: {size: 1m}, aggregate: [max], bound: 4s}
  worst: {at: north, from: [hourly], window: {size: 1h}, aggregate: [max], bound: 4s}
"""


def test_a_query_is_at_its_site_as_a_whole_and_nowhere_else() -> None:
    centre, north, west = (parsed(FILE + AT_NORTH, site) for site in (None, "north", "west"))
    assert [*centre.queries] == ["q", "here"]
    assert [*west.queries] == ["q"]
    assert [*north.queries] == ["q", "own", "hourly", "worst"]
    alone = """\
apiVersion: slackwater/v1
streams:
""" + "".join(
        line.replace(", site: north", "") + "\n"
        for line in FILE.splitlines()
        if line.startswith(("  a:", "  d:"))
    )
    as_if_alone = parsed(f"{alone}queries:\n{AT_NORTH.replace('at: north, ', '')}")
    for name in ("own", "hourly", "worst"):
        assert north.queries[name] == as_if_alone.queries[name], "as in a file of its own"
    assert {each.child_query for each in share(north).queries.values()} == {
        "q",
        "own",
        "hourly",
        "worst",
    }


def test_a_query_at_a_site_needs_no_centre_and_its_alerts_are_there() -> None:
    text = FILE.replace('centre: "kafka.centre:9092", bootstrap', "bootstrap", 1)
    text = text.replace("from: [a, b, c, d]", "from: [b, c]") + AT_NORTH
    text += "alerts: {hot: {query: hourly, when: x_max > 3}}\n"
    north = parsed(text, "north")
    assert [*north.queries] == ["own", "hourly", "worst"]
    assert [alert.name for alert in north.queries["hourly"].alerts] == ["hot"]
    assert "hourly" not in parsed(text).queries


def test_a_file_without_queries_at_the_centre_says_which_sites_have_them() -> None:
    text = FILE[: FILE.index("  q:\n")] + AT_NORTH
    assert [*parsed(text, "north").queries] == ["own", "hourly", "worst"]
    with pytest.raises(UsageError, match=r"nothing runs at the centre: all .* north; give --site"):
        parsed(text)


def test_topics_and_rights_at_the_centre_are_without_the_sites_sources() -> None:
    names = {spec.name for spec in topic_specs(parsed(), {})}
    assert "sw.source.b" in names
    assert not {"sw.source.a", "sw.source.c.0", "sw.quarantine.a"} & names
    assert {"sw.merged.q.0", "sw.deltas.q.0"} <= names
    granted = {rule.name for rule in rules(Role.PROXY, parsed())}
    assert not {"sw.source.a", "c-readings"} & granted


def test_what_a_place_runs_is_stored_with_its_sites(tmp_path: Path) -> None:
    for site in (None, "north"):
        view = parsed(site=site)
        path = tmp_path / "f.recorded"
        path.write_text(to_text(view))
        assert read_stored(path) == view
        for query in view.queries.values():
            assert QuerySpec.from_json(query.to_json()) == query


def test_the_file_says_where_a_site_is(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(FILE)
    assert site_of(path, "north").bootstrap == "10.1.0.1:9092"
    assert site_of(path, "west").bootstrap is None
    assert load_deployment(path, site="west") == parsed(site="west")


def test_an_unknown_site_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match=r"no site south .*; there are: north, west"):
        parsed(site="south")
    with pytest.raises(UsageError, match="there are: none"):
        view_of(Deployment("wall", {}, {}), "south")


def test_a_file_without_sites_is_as_it_was() -> None:
    text = FILE.replace('  north: {centre: "kafka.centre:9092", bootstrap: "10.1.0.1:9092"}\n', "")
    text = text.replace('sites:\n  west: {centre: "kafka.centre:9092"}\n', "")
    plain = parsed(text)
    assert plain.queries["q"].sites == ()
    assert not plain.queries["q"].has_remote
    assert not any(stream.elsewhere for stream in plain.streams.values())
    assert len(plain.queries["q"].child_groups) == 3, "one for each label, as before"


def test_queries_at_sites_share_no_children() -> None:
    text = FILE + FILE[FILE.index("  q:\n") : FILE.index("  here:")].replace("q:", "r:").replace(
        "size: 10s", "size: 20s"
    )
    for site in (None, "north"):
        shared = share(parsed(text, site))
        assert {query.child_query for query in shared.queries.values()} == {*shared.queries}


@pytest.mark.parametrize(
    ("old", "new", "line", "reason"),
    [
        ("children: sites", "children: 4", 22, "no child can be in two: write `children: sites`"),
        ("    children: sites\n", "", 18, "no child can be in two: write `children: sites`"),
        (
            "children: sites",
            "children: {x: [a, b], y: [c, d]}",
            22,
            "children.x: no child can be at two places: a is read at site north, b at the centre",
        ),
        (
            "children: sites",
            "children: {x: [a, d], y: [b], z: [c/0-3]}",
            22,
            "children.z[0]: c is read at site west, where its logs are counted: write c",
        ),
        ("    mergers: 2\n", "", 18, "from which merged panes come: write `mergers: 2`"),
        ("mergers: 2", "mergers: 0", 23, "from which merged panes come: write `mergers: 2`"),
        ("site: hall}", "disorder: 0s}", 22, "needs a site of each stream"),
        ("expect_every: 5s", "expect_every: auto", 13, "the centre does not learn what is learned"),
        ("  west: {centre:", "  east: {centre:", 4, "no stream has site: east; a stream has site:"),
        ('"10.1.0.1:9092"', '"kafka.centre:9092"', 3, "is the centre's Kafka: a site has its own"),
        ('"10.1.0.1:9092"', '"10.1.0.1"', 3, "is not a HOST:PORT"),
        (
            '{centre: "kafka.centre:9092"}',
            "{}",
            4,
            "sites.west.centre: is required: query q has a child at west",
        ),
        (
            "from: [b], window",
            "at: nort, from: [b], window",
            24,
            "queries.here.at: there is no site nort with a Kafka of its own; did you mean 'north'?",
        ),
        ("from: [b], window", "at: hall, from: [b], window", 24, "there is no site hall"),
        (
            "from: [b], window",
            "at: north, from: [a, b], window",
            24,
            "b is read at the centre, and a query at north reads what is at north",
        ),
        ("from: [b], window", "at: north, from: [c], window", 24, "c is read at site west, and"),
        (
            "from: [b], window",
            "at: north, from: [q], window",
            24,
            "the results of q are at the centre",
        ),
        (
            "  here: {from: [b]",
            "  own: {at: north, from: [a], bound: 4s}\n  here: {from: [own, b]",
            25,
            "the results of own are at site north: write `at: north`",
        ),
        ('{centre: "kafka.centre:9092"}', '{center: "k:1"}', 4, "center"),
        ("  west: {", "  West: {", 4, "West"),
        ("apiVersion: slackwater/v1", "apiVersion: slackwater/v1\nclock: data", 24, "clock: wall"),
    ],
)
def test_what_cannot_be_is_refused_with_its_line(
    old: str, new: str, line: int, reason: str
) -> None:
    assert old in FILE
    with pytest.raises(DeploymentError) as error:
        parsed(FILE.replace(old, new, 1))
    assert any(
        text.startswith(f"f.yaml:{line}:") and reason in text
        for text in str(error.value).splitlines()
    ), str(error.value)


def test_a_join_over_a_site_is_refused() -> None:
    join = "  j: {from: [a, b], join: {left: a, right: b, within: 1s}, bound: 4s}"
    text = FILE.replace("queries:\n", f"queries:\n{join}\n")
    with pytest.raises(DeploymentError, match=r"f.yaml:17: queries.j.join: .* must read both"):
        parsed(text)


def test_a_label_that_is_nearly_a_site_is_a_warning() -> None:
    text = FILE.replace("disorder: 2s, site: hall", "disorder: 2s, site: nort")
    warnings = parse_deployment(text, "f.yaml").warnings
    assert any("nort is not in sites, so it is a label of nodes; north is" in w for w in warnings)


def test_what_has_one_kafka_refuses_remote_streams() -> None:
    with pytest.raises(UsageError, match=r"stream a is at site north.*a rehearsal has one"):
        check_all_here(parsed(), Path("f.yaml"), "a rehearsal has one")
    check_all_here(parsed(site="north"), Path("f.yaml"), "a rehearsal has one")


def test_readings_of_a_remote_stream_are_sent_to_its_site() -> None:
    with pytest.raises(UsageError, match=r"stream a is read at site north, .*: send its readings"):
        check_stream("a", parsed().streams)
    check_stream("a", parsed(site="north").streams)


def test_queries_with_children_at_sites_are_not_changed() -> None:
    centre = parsed()
    changed = replace(centre.queries["q"], name="q.g1", bound_us=9_000_000)
    reasons = [*why_no_change(changed, centre, centre, (), {})]
    assert any("cannot be changed in this version" in reason for reason in reasons)


def test_panes_fit_if_all_is_equal_on_which_they_depend() -> None:
    north, centre = parsed(site="north").queries["q"], parsed().queries["q"]
    assert why_other(north, centre) == ""
    assert why_other(replace(north, bound_us=1), centre) == "", (
        "when they are answered is no matter"
    )
    assert why_other(replace(north, where="x > 1"), centre) == "where differ"
    assert "streams differ" in why_other(replace(north, sources=("a",)), centre)
    assert "other children are those of site" in why_other(
        north, replace(centre, sites=("", "", ""))
    )
    uplink = replace(north.uplink or UplinkSpec("", "", ()), children=(9,))
    assert "other children are those of site" in why_other(replace(north, uplink=uplink), centre)


def test_processes_of_remote_streams_are_not_expected() -> None:
    assert not {"proxy/a", "proxy/c", "proxy/d"} & seen_of(parsed().queries).keys()
