"""Where the project's own files lie: schemas, jars, the POMs.

An editable install runs from the repository, a container from a copy of it. Both have the same
tree, so one root is enough: SLACKWATER_HOME if it is set, else the repository that this file
stands in. It lives in the codec because the schemas are needed here first; the runtime builds on
it. Package data was the alternative; it would hide the contracts on the wire inside the code.
"""

import os
from functools import cache
from pathlib import Path

from slackwater.model.errors import EnvironmentProblem

HOME_VARIABLE = "SLACKWATER_HOME"


def home() -> Path:
    """The root of the project's tree."""
    given = os.environ.get(HOME_VARIABLE)
    root = Path(given) if given else Path(__file__).resolve().parents[3]
    return _checked(root)


def schemas_dir() -> Path:
    """The folder of the Avro schemas and of topics.toml."""
    return home() / "schemas"


@cache
def _checked(root: Path) -> Path:
    if not (root / "schemas").is_dir():
        raise EnvironmentProblem(
            f"no folder schemas in {root}: set {HOME_VARIABLE} to the root of the project"
        )
    return root.resolve()
