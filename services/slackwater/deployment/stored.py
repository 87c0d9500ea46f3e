"""A deployment as a file of values, for the processes of a node.

A node has no deployment file: its queries are in the replicated record. It writes what the record
has, already checked, for the processes that it starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from slackwater.model.deployment import Deployment
from slackwater.model.errors import DeploymentError

SUFFIX: Final = ".recorded"
"""Of the name of such a file."""
_DEPLOYMENT: Final = TypeAdapter(Deployment)


def to_text(deployment: Deployment) -> str:
    """The content of the file."""
    return _DEPLOYMENT.dump_json(deployment).decode()


def read_stored(path: Path) -> Deployment:
    """The deployment of a file; ``DeploymentError`` if it is none."""
    try:
        return _DEPLOYMENT.validate_json(path.read_bytes(), strict=True)
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise DeploymentError(
            f"{path}: not what a node writes: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        ) from None
