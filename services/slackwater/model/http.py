"""The HTTP settings of a stream, and of the listener to which its readings are posted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class HttpInputSpec:
    """A stream whose readings are posted; ``token_file`` holds the bearer tokens it accepts.

    ``sequence``: path of the device's counter.
    """

    token_file: str | None = None
    sequence: str | None = None


@dataclass(frozen=True, slots=True)
class HttpListenSpec:
    """The address at which a proxy accepts HTTP requests; without certificate and key: no TLS."""

    host: str = "127.0.0.1"
    port: int = 8088
    certificate_file: str | None = None
    key_file: str | None = None

    @property
    def url(self) -> str:
        """The address of its streams, before their names."""
        scheme = "http" if self.certificate_file is None else "https"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}/streams/"


HTTP_DEFAULT: Final = HttpListenSpec()
"""The address unless another one is declared."""
