"""A checked deployment as JSON, for the processes of a node.

A node has no deployment file: its queries are in the controllers' replicated record, where they
were checked when they were applied. The node writes them to a file that its processes read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError

SUFFIX: Final = ".recorded"
"""Suffix of the file's name."""
_DEPLOYMENT: Final = TypeAdapter(Deployment)


def to_text(deployment: Deployment) -> str:
    """Return the content of the file."""
    return _DEPLOYMENT.dump_json(deployment).decode()


def read_stored(path: Path) -> Deployment:
    """Read the deployment from a file; ``DeploymentError`` if a node has not written it."""
    try:
        return _DEPLOYMENT.validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise DeploymentError(
            f"{path}: is not a deployment that a node has written: {field}: {first['msg']}"
        ) from None
