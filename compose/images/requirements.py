"""Print what an image installs: the lock, less what its processes never import.

    python3 requirements.py services|aggregator|node

pyproject.toml stays the one list, and locks/python.txt says what each package on it needs: the
``# via`` below an entry names those that need it.
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
        "prompt-toolkit",
        "numba",
    },
    "node": set(),  # it runs processes of all kinds
}


def normal(name: str) -> str:
    """As packages are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(image: str, project: str, lock: str) -> list[str]:
    """The lock's entries for the image, hashes and all."""
    declared = tomllib.loads(project)["project"]["dependencies"]
    names = {normal(re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]) for line in declared}
    wanted = names - LEFT_OUT[image]
    entries: dict[str, str] = {}
    needed_by: dict[str, set[str]] = {}
    for entry in re.split(r"\n(?=[A-Za-z0-9])", lock):
        name = normal(re.split(r"[=\[ ]", entry, maxsplit=1)[0])
        text, _, via = entry.partition("    # via")
        entries[name] = text.rstrip()
        needed_by[name] = {normal(found) for found in re.findall(r"[A-Za-z0-9._-]+", via)}
    while more := {n for n, by in needed_by.items() if by & wanted and n not in names | wanted}:
        wanted |= more
    return [text for name, text in entries.items() if name in wanted]


if __name__ == "__main__":
    files = (Path(name).read_text() for name in ("pyproject.toml", "locks/python.txt"))
    sys.stdout.write("\n".join(requirements(sys.argv[1], *files)) + "\n")
