"""The address of a controller: clients import it from here, and nothing else of the controller."""

from __future__ import annotations

from typing import NamedTuple


class Address(NamedTuple):
    """The address of a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        """The address as on the command line."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
