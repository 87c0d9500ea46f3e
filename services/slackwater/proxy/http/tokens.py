"""Bearer tokens of a stream, from a secret file.

The file has one token per line; blank lines and lines that begin with ``#`` are skipped. Several
tokens are valid at the same time, so that a token can be replaced without an interruption. Only
digests are kept in memory, and all of them are compared in constant time: response times reveal
neither the number of matching characters nor the matching token. A file that users other than its
owner can read or change is refused, as for MQTT and Kafka.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from pathlib import Path
from typing import Final

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.security.private import open_to_others

FILE_BYTES_MAX: Final = 65_536
TOKEN_CHARS_MIN: Final = 16
TOKEN_CHARS_MAX: Final = 1_024
TOKENS_MAX: Final = 100
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/=-]+", re.ASCII)


class Tokens:
    """The tokens that a stream accepts."""

    def __init__(self, tokens: list[str]) -> None:
        self._digests = [_digest(token) for token in tokens]

    def accept(self, authorization: str | None) -> bool:
        """Return whether the value of an ``Authorization`` header has one of the tokens."""
        scheme, _, token = (authorization or "").partition(" ")
        given = _digest(token.strip())
        matches = [hmac.compare_digest(given, known) for known in self._digests]
        return scheme.lower() == "bearer" and any(matches)


def read_tokens(path: Path) -> Tokens:
    """Read a token file; errors (``EnvironmentProblem``) name file and line, never the content."""
    tokens = []
    for number, line in enumerate(read_private(path).splitlines(), 1):
        token = line.strip()
        if token and not token.startswith("#"):
            tokens.append(parse_token(token, path, number))
    if not 0 < len(tokens) <= TOKENS_MAX:
        raise EnvironmentProblem(
            f"token file {path} has {len(tokens)} tokens, not 1 to {TOKENS_MAX}"
        )
    return Tokens(tokens)


def read_private(path: Path) -> str:
    """Return a file that only its owner can read and change; else ``EnvironmentProblem``."""
    try:
        why = open_to_others(path)
        with path.open("rb") as file:
            raw = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise EnvironmentProblem(
            f"token file {path}: {error.strerror or 'cannot be read'}"
        ) from error
    if why is not None:
        raise EnvironmentProblem(f"token file {path} {why}")
    if len(raw) > FILE_BYTES_MAX:
        raise EnvironmentProblem(f"token file {path} is larger than {FILE_BYTES_MAX} bytes")
    return raw.decode(errors="replace")


def parse_token(text: str, path: Path, number: int) -> str:
    """Return a token of line ``number``; ``EnvironmentProblem`` if it is none."""
    if not TOKEN_CHARS_MIN <= len(text) <= TOKEN_CHARS_MAX or not _TOKEN.fullmatch(text):
        raise EnvironmentProblem(
            f"token file {path}:{number}: a token has {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} "
            "letters, digits and - . _ ~ + / =, such as the output of `openssl rand -hex 32`"
        )
    return text


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
