"""Reads and checks the deployment file.

The worst errors in a file leave the pipeline running with a wrong configuration: a misspelt field
that is ignored, a bound that no stage can keep. Unknown fields are therefore errors, unsupported
features are refused, and each message names file, line and field. All errors are reported together:
each stream and each query is checked by itself, and dependencies are checked among the valid ones.

Pydantic checks the fields and their types (``shapes.py``). Constraints between fields are checked
by ``check.py`` and the modules it calls, where the line is known.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slackwater.deployment.check import check_content
from slackwater.deployment.findings import Findings
from slackwater.deployment.sites import view_of
from slackwater.deployment.yaml_lines import Document, read_document
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError
from slackwater.model.sites import SiteSpec

FILE_BYTES_MAX: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class CheckedDeployment:
    """A valid deployment and its warnings."""

    deployment: Deployment
    warnings: tuple[str, ...]


def load_deployment(
    path: Path | str, *, micro_batch: bool = False, site: str | None = None
) -> Deployment:
    """Return the deployment in the file; ``DeploymentError`` lists all its errors.

    Of a file with ``sites`` it is what runs at ``site``, or, without it, at the centre;
    ``UsageError`` if there is no such site.
    """
    return check_deployment(path, micro_batch=micro_batch, site=site).deployment


def site_of(path: Path, site: str) -> SiteSpec:
    """Return a site of a file that has been checked for it."""
    return _read(path, micro_batch=False).deployment.sites[site]


def check_deployment(
    path: Path | str, *, micro_batch: bool = False, site: str | None = None
) -> CheckedDeployment:
    """As ``load_deployment``, with warnings. ``micro_batch``: aggregators run in micro-batches."""
    return _view(_read(Path(path), micro_batch=micro_batch), site)


def _view(checked: CheckedDeployment, site: str | None) -> CheckedDeployment:
    return replace(checked, deployment=view_of(checked.deployment, site))


def _read(path: Path, *, micro_batch: bool) -> CheckedDeployment:
    """Return the content of a file, with all of its sites."""
    try:
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        utf16 = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        found = f"is {'UTF-16' if utf16 else 'not UTF-8 text'}: save it as UTF-8"
        raise DeploymentError(f"{path}:{line}: {found}") from error
    if len(raw) > FILE_BYTES_MAX:
        raise DeploymentError(f"{path}: is larger than {FILE_BYTES_MAX} bytes")
    return _parse(text, str(path), micro_batch=micro_batch)


def found_later(path: Path, place: Place, reason: str) -> DeploymentError:
    """Return an error in a file that shows only when something else is known, with its line.

    The file may be in another notation, or be no longer there.
    """
    try:
        document = read_document(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        document = Document()
    if document.content is None:
        return DeploymentError(f"{path}: {'.'.join(map(str, place))}: {reason}")
    findings = Findings(document, str(path))
    findings.error(place, reason)
    return findings.failure()


def parse_deployment(
    text: str, where: str, *, micro_batch: bool = False, site: str | None = None
) -> CheckedDeployment:
    """As ``check_deployment``, for a text; ``where`` is the file's name in messages."""
    return _view(_parse(text, where, micro_batch=micro_batch), site)


def _parse(text: str, where: str, *, micro_batch: bool) -> CheckedDeployment:
    document = read_document(text)
    findings = Findings(document, where)
    for problem in document.problems:
        findings.at_line(problem.line, problem.reason)
    if document.content is None:
        if not document.problems:
            findings.error((), "is empty")
        raise findings.failure()
    deployment = check_content(document.content, findings, micro_batch=micro_batch)
    if deployment is None:
        raise findings.failure()
    return CheckedDeployment(deployment, findings.warnings())
