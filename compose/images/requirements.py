"""Print what an image installs: the project's dependencies, less what its processes never import.

    python3 requirements.py services|aggregator

pyproject.toml stays the one list; constraints.txt pins what is taken, as it does for `make setup`.
"""

import re
import sys
import tomllib
from pathlib import Path

LEFT_OUT = {
    "services": {"pyspark"},
    "aggregator": {
        "faust-streaming",
        "mode-streaming",
        "aiokafka",
        "click",
        "pyarrow",
        "typer",
        "rich",
        "prometheus-client",
    },
}


def requirements(image: str) -> list[str]:
    """The image's requirements, in the order of the file."""
    declared = tomllib.loads(Path("pyproject.toml").read_text())["project"]["dependencies"]
    names = {line: re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in declared}
    return [line for line, name in names.items() if name not in LEFT_OUT[image]]


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements(sys.argv[1])) + "\n")
