"""Children and sketches that cannot be, each refused with exit code 2, its line and its place."""

from __future__ import annotations

import pytest

from slackwater.deployment.parse import parse_deployment
from slackwater.model.errors import DeploymentError

FILE = """\
apiVersion: slackwater/v1
clock: data
streams:
  a: {{key: {{value: k}}, time: {{column: t, unit: s}}, fields: [v]}}
  b: {{key: {{value: k}}, time: {{column: t, unit: s}}, fields: [v]}}
queries:
  q:
    from: [a, b]
    bound: 2s
{lines}
"""
WINDOW = "window: {size: 1m}"


@pytest.mark.parametrize(
    ("lines", "line", "reported"),
    [
        ((WINDOW, "aggregate: [quantiles: [0.5, 1]]"), 11, "quantiles: must be between 0 and 1"),
        ((WINDOW, "aggregate: [quantiles: [0]]"), 11, "quantiles: must be between 0 and 1"),
        ((WINDOW, "aggregate: [quantiles: [-0.5]]"), 11, "quantiles: must be between 0 and 1"),
        (("aggregate: [top: 3]",), 10, "aggregate: needs a window"),
        (("aggregate: [quantiles: [0.5]]",), 10, "aggregate: needs a window"),
        ((WINDOW, "aggregate: [top: 0]"), 11, "top: must be a whole number from 1 to 100"),
        ((WINDOW, "aggregate: [avg]", "children: {n: [a, b], s: [b]}"), 12, "b is also in n"),
        ((WINDOW, "aggregate: [avg]", "children: {n: [a]}"), 12, "children: b is in no child"),
        (
            (WINDOW, "aggregate: [avg]", "children: {n: [a, b/0], s: [b/7]}"),
            12,
            "children.s[0]: there is no b/7: b has 1 log",
        ),
        ((WINDOW, "aggregate: [avg]", "children: {n: [a, b], s: [c]}"), 12, "'c' is not in from"),
    ],
)
def test_each_names_its_line(lines: tuple[str, ...], line: int, reported: str) -> None:
    text = FILE.format(lines="\n".join(f"    {each}" for each in lines))
    with pytest.raises(DeploymentError) as caught:
        parse_deployment(text, "f.yaml")
    assert caught.value.exit_code == 2
    found = [each for each in str(caught.value).splitlines() if reported in each]
    assert found
    assert found[0].startswith(f"f.yaml:{line}: queries.q.")
