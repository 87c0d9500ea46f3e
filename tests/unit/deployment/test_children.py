"""The children that a file declares, and those that plans assume."""

from __future__ import annotations

import pytest

from slackwater.deployment.children import divided, planned
from slackwater.deployment.parse import parse_deployment
from slackwater.model.child_logs import ChildrenError
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError

FILE = """\
apiVersion: slackwater/v1
streams:
  lab:
    topic: {name: readings, format: json}
    key: {field: k}
    time: {field: t, unit: us}
    fields: [a]
    site: north
    expect_every: 1s
  room: {key: {column: k}, time: {column: t, unit: us}, fields: [a], site: south, disorder: 1s}
  hall: {key: {column: k}, time: {column: t, unit: us}, fields: [a], site: north, disorder: 1s}
queries:
  q:
    from: [lab, room, hall]
    window: {size: 1s}
    aggregate: [count]
    parts: 4
    bound: 2s
    children: CHILDREN
"""


def parsed(children: str, old: str = "", new: str = "") -> Deployment:
    text = FILE.replace("CHILDREN", children)
    return parse_deployment(text.replace(old, new), "d.yaml").deployment


def refused(children: str, old: str = "", new: str = "") -> str:
    with pytest.raises(DeploymentError) as raised:
        parsed(children, old, new)
    return str(raised.value)


def test_a_number_divides_the_partitions_that_there_are() -> None:
    made = parsed("4")
    query = made.queries["q"]
    assert (query.children, query.child_groups) == (4, ())
    found = divided(made, query, {"lab": 6})
    assert dict(found.logs) == {"lab": (0, 0, 1, 1, 2, 2), "room": (3,), "hall": (3,)}
    assert dict(planned(made, query).logs)["lab"] == (0, 0, 1, 1)
    with pytest.raises(ChildrenError, match="4 children, but only 3 logs"):
        divided(made, query, {"lab": 1})


def test_names_say_which_logs_a_child_has() -> None:
    made = parsed("{one: [room, lab/0-1], two: [hall, lab/2-]}")
    query = made.queries["q"]
    assert query.child_groups == (("one", ("room", "lab/0-1")), ("two", ("hall", "lab/2-")))
    found = divided(made, query, {"lab": 3})
    assert dict(found.logs) == {"lab": (0, 0, 1), "room": (0,), "hall": (1,)}
    assert planned(made, query).logs == found.logs


def test_one_child_with_names_has_only_the_logs_that_are_named() -> None:
    made = parsed("{all: [lab/0-2, room, hall]}")
    found = divided(made, made.queries["q"], {"lab": 3})
    assert not found.takes_in("lab", 3)
    assert found.takes_in("room", 0)


def test_sites_have_a_child_each() -> None:
    query = parsed("sites").queries["q"]
    assert query.children == 2
    assert query.child_groups == (("north", ("lab", "hall")), ("south", ("room",)))
    assert ": queries.q.children: needs a site of each stream, and room has none" in refused(
        "sites", ", site: south", ""
    )


@pytest.mark.parametrize("order", ["    aggregate: [count, first]", "    aggregate: [last]"])
def test_equal_times_have_the_order_of_the_logs_where_it_counts(order: str) -> None:
    groups = "{one: [room, lab/0-1], two: [hall, lab/2-]}"
    reported = refused(groups, "    aggregate: [count]", order)
    assert "19: queries.q.children: without a window, and for first and last" in reported
    made = parsed("{one: [lab/0-1], two: [lab/2-, room, hall]}", "    aggregate: [count]", order)
    assert divided(made, made.queries["q"], {"lab": 3}).child_of("lab", 9) == 1


def test_the_logs_of_a_query_that_is_read_are_its_parts() -> None:
    window = "window: {size: 2s}, aggregate: [max], bound: 2s"
    reader = f"1\n  p: {{from: [q], {window}, children: 3}}"
    made = parsed(reader)
    assert dict(divided(made, made.queries["p"], {}).logs) == {"q": (0, 0, 1, 2)}
    assert "5 children, but only 4 logs" in refused(reader.replace("3}", "5}"))
