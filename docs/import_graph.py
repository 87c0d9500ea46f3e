"""Draw the packages of the code and their imports: `make graph` writes docs/import-graph.svg.

The picture is derived from the import statements alone; a unit test fails while the file is not
what this module draws. A box is a package. What is below a package with modules of its own belongs
to it; a folder that only holds packages is no box, but they are. A box stands one row above the
highest one that it imports. An arrow that a longer way implies is left out, as are imports that
only a type checker follows.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "import-graph.svg"
TREES = {
    "slackwater": ROOT / "services/slackwater",
    "slackwater_spark": ROOT / "spark/slackwater_spark",
}
WIDTH, HEIGHT, GAP, ROW, MARGIN = 150, 34, 22, 92, 24
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
 font-family="sans-serif" font-size="14">
<title>Packages of slackwater and their imports</title>"""
TIP = """\
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8"
 orient="auto"><path d="M0 0L8 4L0 8z" fill="#00695c"/></marker></defs>"""
ARROW = """\
<line x1="{:g}" y1="{:g}" x2="{:g}" y2="{:g}" stroke="#00695c" marker-end="url(#tip)"/>"""
BOX = """\
<rect x="{:g}" y="{:g}" width="{}" height="{}" rx="5" fill="#e0f2f1" stroke="#00695c"/>"""
TEXT = """\
<text x="{:g}" y="{:g}" text-anchor="middle" fill="#102020">{}</text>"""

Graph = dict[str, set[str]]
"""Each package, and those that it imports."""


def package_of(module: str, modules: Mapping[str, Path]) -> str:
    """The outermost package around a module that has modules of its own."""
    own = module if modules[module].name == "__init__.py" else module.rpartition(".")[0]
    parts = own.split(".")
    for end in range(1, len(parts)):
        package = ".".join(parts[:end])
        inside = (name for name in modules if name.rpartition(".")[0] == package)
        if any(modules[name].name != "__init__.py" for name in inside):
            return package
    return own


def modules_of(trees: Mapping[str, Path]) -> dict[str, Path]:
    found = {}
    for name, folder in trees.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((name, *(part for part in parts if part != "__init__")))] = path
    return found


def imported(path: Path) -> Iterator[str]:
    """Names that a module imports when it runs, at its top or in a function."""
    left: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        left += ast.iter_child_nodes(node)


def graph_of(trees: Mapping[str, Path]) -> Graph:
    """Packages by what they import; the two roots' own modules (``slackwater``) are left out."""
    modules = modules_of(trees)
    graph: Graph = {}
    for module, path in modules.items():
        package = package_of(module, modules)
        used = graph.setdefault(package, set())
        for name in imported(path):
            target = name if name in modules else name.rpartition(".")[0]
            if target in modules:
                used.add(package_of(target, modules))
    # A package that only holds packages, and the root that re-exports, are no boxes.
    hidden = {
        name
        for name in graph
        if name == "slackwater"
        or (not graph[name] and any(o.startswith(f"{name}.") for o in graph))
    }
    return {name: used - {name} - hidden for name, used in graph.items() if name not in hidden}


def reachable(graph: Graph, start: str) -> set[str]:
    seen: set[str] = set()
    left = list(graph[start])
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += graph[name]
    return seen


def levels(graph: Graph) -> dict[str, int]:
    """Each package one above the highest that it imports; those of a circle on the same level."""
    below = {name: reachable(graph, name) for name in graph}
    level_of = dict.fromkeys(graph, 0)
    for name in sorted(graph, key=lambda name: len(below[name] | {name})):
        lower = [level_of[other] for other in below[name] if name not in below[other]]
        level_of[name] = max(lower, default=-1) + 1
    return level_of


def reduced(graph: Graph) -> Graph:
    """Without the arrows that a longer way implies; a circle implies none."""
    below = {name: reachable(graph, name) for name in graph}

    def implied(name: str, one: str) -> bool:
        return any(
            one in below[other] and other not in below[one] and name not in below[other]
            for other in graph[name] - {one}
        )

    return {name: {one for one in used if not implied(name, one)} for name, used in graph.items()}


def label(package: str) -> str:
    return package.removeprefix("slackwater.").replace(".", "/")


def places(graph: Graph) -> tuple[dict[str, tuple[float, float]], int, int]:
    """The left upper corner of each box; width and height of the whole."""
    level_of = levels(graph)
    top = max(level_of.values())
    rows = [sorted(name for name in graph if level_of[name] == level) for level in range(top + 1)]
    width = 2 * MARGIN + max(len(row) for row in rows) * (WIDTH + GAP) - GAP
    found = {}
    for level, row in enumerate(rows):
        left = (width - len(row) * (WIDTH + GAP) + GAP) / 2
        for index, name in enumerate(row):
            found[name] = (left + index * (WIDTH + GAP), MARGIN + float(top - level) * ROW)
    return found, width, 2 * MARGIN + top * ROW + HEIGHT


def draw(graph: Graph) -> str:
    """The picture, as SVG; the same text for the same graph."""
    place, width, height = places(graph)
    lines = [HEAD.format(width=width, height=height), "<desc>"]
    for name, used in sorted(graph.items()):
        others = ", ".join(label(other) for other in sorted(used)) or "nothing"
        lines.append(f"{label(name)} imports {others}")
    lines += ["</desc>", TIP, f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>']
    for name, used in sorted(reduced(graph).items()):
        x, y = place[name]
        lines += [
            ARROW.format(x + WIDTH / 2, y + HEIGHT, *middle(place[to])) for to in sorted(used)
        ]
    for name, (x, y) in sorted(place.items()):
        lines.append(BOX.format(x, y, WIDTH, HEIGHT))
        lines.append(TEXT.format(x + WIDTH / 2, y + HEIGHT / 2 + 5, label(name)))
    return "\n".join([*lines, "</svg>", ""])


def middle(corner: tuple[float, float]) -> tuple[float, float]:
    """Where an arrow meets a box."""
    return corner[0] + WIDTH / 2, corner[1]


if __name__ == "__main__":
    PICTURE.write_text(draw(graph_of(TREES)), encoding="utf-8")
    sys.stdout.write(f"wrote {PICTURE.relative_to(ROOT)}\n")
