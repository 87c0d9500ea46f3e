"""Delivers batches to the HTTP input of a proxy, as Arrow IPC streams."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from slackwater.producer.batches import encoded
from slackwater.producer.sink import Delivery, ProducerError, TryAgain

CONTENT_TYPE: Final = "application/vnd.apache.arrow.stream"
TIMEOUT_S: Final = 60.0
AGAIN: Final = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which a repeated request may succeed."""
_RESPONSE_BYTES_MAX: Final = 1024 * 1024


class HttpSink:
    """A connection to a proxy, reopened after each failure."""

    def __init__(
        self, url: str, stream: str, token: str | None = None, ca_file: Path | None = None
    ) -> None:
        """``url`` is the proxy's address; its certificate is verified with ``ca_file``."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProducerError(f"{url!r} is not an address like http://127.0.0.1:8088")
        self._host, self._port = parts.hostname, parts.port
        self._path = f"{parts.path.rstrip('/')}/streams/{quote(stream)}"
        self._context = (
            ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
            if parts.scheme == "https"
            else None
        )
        self._headers = {"Content-Type": CONTENT_TYPE}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._connection: http.client.HTTPConnection | None = None
        self._encoded: tuple[str, bytes] | None = None

    def deliver(self, batch: Delivery) -> Mapping[str, int]:
        """Post a batch; return the counts of the response."""
        if self._encoded is None or self._encoded[0] != batch.key:
            self._encoded = (batch.key, encoded(batch.table))
        try:
            connection = self._connect()
            headers = {**self._headers, "Idempotency-Key": batch.key}
            connection.request("POST", self._path, self._encoded[1], headers)
            response = connection.getresponse()
            status, content = response.status, response.read(_RESPONSE_BYTES_MAX)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if isinstance(error, ssl.SSLCertVerificationError):
                raise ProducerError(f"{self._where}: {error.verify_message}") from error
            raise TryAgain(f"{self._where}: {error!r}") from error
        answer = _parsed(content)
        if status == 200:
            self._encoded = None
            return {name: n for name, n in answer.items() if type(n) is int}
        reason = f"{self._where} returned {status}: {answer.get('error', '')}"
        if status in AGAIN:
            raise TryAgain(reason, _seconds(response.getheader("Retry-After")))
        raise ProducerError(reason, answer)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def _where(self) -> str:
        return f"{self._host}:{self._port or ''}{self._path}"

    def _connect(self) -> http.client.HTTPConnection:
        if self._connection is None:
            if self._context is None:
                self._connection = http.client.HTTPConnection(
                    self._host, self._port, timeout=TIMEOUT_S
                )
            else:
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT_S, context=self._context
                )
        return self._connection


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError:
        return {"error": content[:200].decode(errors="replace")}
    return answer if isinstance(answer, dict) else {}


def _seconds(text: str | None) -> float:
    return float(text) if text is not None and text.isascii() and text.isdigit() else 0.0
