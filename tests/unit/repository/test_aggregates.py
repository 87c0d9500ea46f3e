"""An aggregate has a formula in every place that computes or checks results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from slackwater.deployment.shapes import Aggregate
from slackwater.judge.batch import ExactAggregates
from slackwater.primitives.aggregates import _MADE_OF, AGGREGATES
from slackwater_spark.audit.query import _AGGREGATES

NAMES = get_args(Aggregate)
ROOT = Path(__file__).parents[3]


def test_result_rows_and_the_audit_compute_what_a_deployment_file_may_name() -> None:
    assert set(AGGREGATES) == set(NAMES)
    assert set(_MADE_OF) == set(NAMES)
    assert set(_AGGREGATES) == set(NAMES)


def test_the_batch_computation_has_each_aggregate() -> None:
    figures = ExactAggregates(2, 3.0, 1.0, 2.0, 0.25, 1.0, {})
    for name in NAMES:
        assert figures.get(name) is not None, name


def test_the_page_of_the_deployment_file_names_each_aggregate() -> None:
    page = (ROOT / "docs" / "deployment-file.md").read_text()
    (row,) = [line for line in page.splitlines() if line.startswith("| `aggregate`")]
    assert [name for name in NAMES if not re.search(rf"\b{name}\b", row)] == []
