"""YAML as plain mappings, lists and texts, with the line of each node.

Messages about a deployment file must name the line, so the file is read as YAML's node graph, not
as Python objects: nodes have positions, and tags construct no objects. Every scalar remains the
text in the file (null becomes None): a key ``007`` or a column ``1e3`` must not become a number.
Numbers are parsed where one is expected.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, MaxDepthExceededError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

YAML_NODES_MAX: Final = 200_000
"""Maximum nodes after aliases are expanded."""
YAML_DEPTH_MAX: Final = 20
YAML_ENTRIES_MAX: Final = 1_000
"""Maximum entries of one mapping: streams and queries of a deployment, fields of a stream."""

Path = tuple[str | int, ...]

_PLAIN: Final = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null")}


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in the YAML itself, and its line, counted from 1."""

    line: int
    reason: str


@dataclass(slots=True)
class Document:
    """The content, the line of each path in it, and the errors."""

    content: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int:
        """Return the line of the path, or of its nearest ancestor in the file."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def read_document(text: str) -> Document:
    """Read the text; errors are in ``problems``."""
    document = Document()
    try:
        yaml = YAML(typ="safe", pure=True)
        yaml.Composer = _Composer  # type: ignore[assignment]
        yaml.max_depth = YAML_DEPTH_MAX
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        if isinstance(error, _TooMuch):
            reason = str(error.problem)
        elif isinstance(error, MaxDepthExceededError):
            reason = f"not YAML: nested more than {YAML_DEPTH_MAX} levels deep"
        else:
            parts = (error.problem, error.context)
            reason = "not YAML: " + ", ".join(part for part in parts if part)
        document.problems.append(Problem(line, reason))
        return document
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        document.problems.append(Problem(line, "not YAML: contains a non-printable character"))
        return document
    except (YAMLError, ValueError) as error:
        document.problems.append(Problem(1, f"not YAML: {type(error).__name__}"))
        return document
    if node is not None:
        document.content = _Unfolding(document).value(node, ())
    return document


class _TooMuch(MarkedYAMLError):
    """Raised at the first excess entry, since ruamel needs a minute for ten megabytes."""


class _Composer(Composer):
    """Limits the entries of a mapping. Defining an anchor again causes no warning."""

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self.warn_double_anchors = False

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose as ruamel does, and count the entries of a mapping."""
        if isinstance(parent, MappingNode) and len(parent.value) == YAML_ENTRIES_MAX:
            mark = self.parser.peek_event().start_mark
            reason = (
                f"is entry {YAML_ENTRIES_MAX + 1} of one mapping: at most {YAML_ENTRIES_MAX} "
                "streams, queries, or fields of one of them; let sensors share a stream and "
                "differ in their keys"
            )
            raise _TooMuch(problem=reason, problem_mark=mark)
        return super().compose_node(parent, index)


class _Unfolding:
    """Converts nodes to mappings, lists and texts, expands aliases, and stores their lines."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._nodes = 0

    def value(self, node: Node, path: Path) -> Any:
        line = node.start_mark.line + 1
        self._document.lines.setdefault(path, line)
        self._nodes += 1
        if self._nodes > YAML_NODES_MAX or len(path) > YAML_DEPTH_MAX:
            if self._nodes <= YAML_NODES_MAX + 1:
                self._problem(line, f"more than {YAML_NODES_MAX} nodes or {YAML_DEPTH_MAX} levels")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return self._list(node, path)
        return self._scalar(node, line)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, ScalarNode) or key.value == "<<":
                self._problem(line, "only a name is allowed before a colon")
                continue
            name = str(key.value)
            if name in content:
                first = self._document.line((*path, name))
                self._problem(line, f"{name!r} is defined twice, first in line {first}")
                continue
            self._document.lines[(*path, name)] = line
            content[name] = self.value(value, (*path, name))
        return content

    def _list(self, node: SequenceNode, path: Path) -> list[Any]:
        content = [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        for i, item in enumerate(content):
            if isinstance(item, str):  # ``fields: [a, b]`` becomes a mapping
                self._document.lines.setdefault((*path, item), self._document.lines[(*path, i)])
        return content

    def _scalar(self, node: Node, line: int) -> str | None:
        tag = str(node.tag)
        if tag == "tag:yaml.org,2002:null":
            return None
        if tag not in _PLAIN and tag != "tag:yaml.org,2002:timestamp":
            self._problem(line, f"the tag {tag} is not supported")
        return str(node.value)

    def _problem(self, line: int, reason: str) -> None:
        self._document.problems.append(Problem(line, reason))
