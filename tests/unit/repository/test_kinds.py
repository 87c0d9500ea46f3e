"""Few modules name a kind of fragment: what holds for all kinds is in the table of kinds."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from slackwater.model.kinds import KINDS

REPOSITORY: Final = Path(__file__).parents[3]
CONSTANTS: Final = {kind.upper() for kind in KINDS}
LITERAL: Final = re.compile(rf"(?:{'|'.join(KINDS)})(?:[/.]\S*)?")
NAMED_BY: Final = {
    "services/slackwater/model/names.py": "the names themselves",
    "services/slackwater/model/kinds.py": "the table",
    # What a kind is made of.
    "services/slackwater/model/deployment.py": "the field of a query that has one",
    "services/slackwater/host/app.py": "the factories of orderers and roots",
    "services/slackwater/host/root.py": "its own deadline",
    "services/slackwater/proxy/app.py": "its own kind and folder",
    "services/slackwater/proxy/sensors.py": "its own folder",
    "services/slackwater/proxy/serving.py": "its own folder",
    "spark/slackwater_spark/app.py": "its own kind and folder",
    "spark/slackwater_spark/queries.py": "its own groups",
    # Processes: proxies serve streams, aggregators are JVMs.
    "services/slackwater/machine/changes.py": "aggregators are settled apart from hosts",
    "services/slackwater/machine/layout.py": "the command lines of processes",
    "services/slackwater/machine/placed_proxies.py": "the names of proxy processes",
    "services/slackwater/node/machine.py": "an aggregator runs beside its orderers",
    "services/slackwater/rehearsal/local.py": "the proxy process is a target of faults",
    "services/slackwater/stack/stack.py": "the first aggregator starts beside the broker",
    # Formats that keep their names.
    "services/slackwater/control/recorded.py": "the record's key of proxies",
    "services/slackwater/runtime/security/acl.py": "the prefix of Spark's groups",
    "services/slackwater/runtime/security/credentials.py": "roles, the names of security files",
    "services/slackwater/runtime/service/datadir.py": "the folders of a data directory",
    "services/slackwater/runtime/service/state.py": "the two forms of state records",
    # Answers to people, and the begin of a query.
    "services/slackwater/cli/query_changes.py": "fragments other than proxies are waited for",
    "services/slackwater/cli/summary.py": "which node an aggregator is on follows from orderers",
    "services/slackwater/registration/begins.py": "fragments that aggregators report",
}


def _is_named_in(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("slackwater.model"):
        return bool(CONSTANTS & {alias.name for alias in node.names})
    text = node.value if isinstance(node, ast.Constant) else None
    return isinstance(text, str) and LITERAL.fullmatch(text) is not None


def test_a_module_that_names_a_kind_has_a_reason_of_its_own() -> None:
    found = {
        str(path.relative_to(REPOSITORY))
        for folder in ("services", "spark")
        for path in (REPOSITORY / folder).rglob("*.py")
        if any(map(_is_named_in, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == NAMED_BY.keys()
