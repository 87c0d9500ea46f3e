"""Windows of the deployment file: what they mean, and what is refused with the nearest form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slackwater.deployment.parse import load_deployment
from slackwater.deployment.sharing import share
from slackwater.deployment.windows import describe_window, why_no_window
from slackwater.model.deployment import Deployment, QuerySpec, WindowSpec
from slackwater.model.errors import DeploymentError, EnvironmentProblem
from slackwater.runtime.service.registry import QueryDefinition
from slackwater.runtime.service.zone_rules import zones_of

HOUR = 3_600_000_000
DAY = 24 * HOUR
WEEK = 7 * DAY
FILE = """\
apiVersion: slackwater/v1
streams:
  room-1:
    key: {column: node}
    time: {column: ts, unit: ms}
    fields: [v]
    sporadic: true
queries:
  q: {from: [room-1], window: %s, aggregate: [avg], bound: 2s}
  r: {from: [room-1], window: {size: 1m}, aggregate: [avg], bound: 2s}
"""


def loaded(tmp_path: Path, window: str) -> Deployment:
    path = tmp_path / "deployment.yaml"
    path.write_text(FILE % window)
    return load_deployment(path)


@pytest.mark.parametrize(
    ("written", "window", "described"),
    [
        ("{size: 1d, zone: Europe/Berlin}", WindowSpec(DAY, DAY, 0, 0, "Europe/Berlin"),
         "1d in Europe/Berlin"),
        ("{size: 24h, zone: UTC}", WindowSpec(DAY, DAY, 0, 0, "UTC"), "1d in UTC"),
        ("{size: 8h, offset: 6h}", WindowSpec(8 * HOUR, 8 * HOUR, 6 * HOUR), "8h from 6h"),
        ("{size: 8h, slide: 4h, offset: 2h}", WindowSpec(8 * HOUR, 4 * HOUR, 2 * HOUR),
         "8h every 4h from 2h"),
        ("{size: 1w}", WindowSpec(WEEK, WEEK, 4 * DAY), "7d from 4d"),
        ("{size: 1w, starts: sunday, zone: America/New_York}",
         WindowSpec(WEEK, WEEK, 3 * DAY, 0, "America/New_York"), "1w from 3d in America/New_York"),
        ("{size: 1mo, offset: 14d}", WindowSpec(30 * DAY, 30 * DAY, 14 * DAY, 1),
         "1mo from 14d in UTC"),
        ("{size: 7d}", WindowSpec(WEEK, WEEK), "7d"),
    ],
)  # fmt: skip
def test_a_window_means(tmp_path: Path, written: str, window: WindowSpec, described: str) -> None:
    found = loaded(tmp_path, written).queries["q"].window
    assert found == window
    assert describe_window(window) == described
    assert why_no_window(window) is None


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{size: 1d, zone: Europe/Berln}", "did you mean 'Europe/Berlin'"),
        ("{size: 7d, zone: Europe/Berlin, offset: 7d}", "7d is not shorter than 7d"),
        ("{size: 5h, zone: Europe/Berlin}", "the nearest is 4h"),
        ("{size: 5mo}", "the nearest is 4mo"),
        ("{size: 1d, slide: 1h, zone: Europe/Berlin}", "remove slide, or zone"),
        ("{size: 1mo, slide: 1d}", "do not overlap: remove slide"),
        ("{size: 1mo, offset: 28d}", "28d is not shorter than 28d"),
        ("{size: 1d, zone: Europe/Berlin, offset: 1ms}", "write whole seconds"),
        ("{size: 1d, starts: monday}", "write size: 1w"),
        ("{size: 1m, offset: 1m}", "1m is not shorter than 1m"),
        ("{size: 1w, starts: mondy}", "monday"),
        ("{size: 0w}", "must be longer than 0"),
        ("{size: 5 moons}", "is not a duration"),
    ],
)
def test_what_is_no_window_is_refused(tmp_path: Path, written: str, message: str) -> None:
    with pytest.raises(DeploymentError) as caught:
        loaded(tmp_path, written)
    assert message in str(caught.value)
    assert "deployment.yaml:9" in str(caught.value)


def test_days_of_a_zone_share_children_with_minutes(tmp_path: Path) -> None:
    shared = share(loaded(tmp_path, "{size: 1d, zone: Europe/Berlin}"))
    assert shared.queries["r"].child_query == "q"


def definition(query: QuerySpec) -> QueryDefinition:
    return QueryDefinition("q", 0, 0, query.bucket_us(), query, zones=zones_of(query))


def test_other_rules_of_a_zone_are_an_error(tmp_path: Path) -> None:
    made = definition(loaded(tmp_path, "{size: 1d, zone: Europe/Berlin}").queries["q"])
    text = json.dumps(made.to_json())
    read = QueryDefinition.from_json(json.loads(text))
    assert read == made
    assert read.grid.later(read.grid.first_window_holding(0)) == 23 * HOUR
    other = json.loads(text)
    other["zones"]["Europe/Berlin"] = "0" * 16
    with pytest.raises(EnvironmentProblem, match="other rules of Europe/Berlin"):
        _ = QueryDefinition.from_json(other).grid


def test_a_definition_without_a_calendar_is_as_before(tmp_path: Path) -> None:
    values = definition(loaded(tmp_path, "{size: 1m}").queries["q"]).to_json()
    assert "zones" not in values
    assert values["spec"]["window"] == {"size_us": 60_000_000, "slide_us": 60_000_000}


def test_a_window_that_no_file_can_declare_is_refused(tmp_path: Path) -> None:
    values = definition(loaded(tmp_path, "{size: 1d, zone: Europe/Berlin}").queries["q"]).to_json()
    values["spec"]["window"]["offset_us"] = DAY
    with pytest.raises(ValueError, match="a window of"):
        QueryDefinition.from_json(values)
