"""Windows over sensor streams that never stall and never lie."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from slackwater.client import Client
    from slackwater.producer import Producer

__all__ = ["Client", "Producer"]
__version__ = "0.1.0"
"""As in ``pyproject.toml``: a container runs the sources, without a package's metadata."""


def __getattr__(name: str) -> Any:
    # Lazily: processes of the pipeline import this package and need no client.
    if name == "Client":
        from slackwater.client import Client

        return Client
    if name == "Producer":
        from slackwater.producer import Producer

        return Producer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
