"""Who may read: this machine without tokens, others with one.

The token file has a line ``view TOKEN`` or ``operate TOKEN`` for each token; the rules for file and
tokens are those of streams (``proxy/http/tokens.py``). Programs send a token as ``Authorization:
Bearer``. The page exchanges it for a session cookie, which scripts cannot read and other sites
cannot use. The cookie is an expiry time with a MAC whose key is the token's digest. So sessions
need no memory, survive a restart, and end when their token is removed from the file.

Without tokens only requests to this machine's own address are answered (``Host``), and no request
from another origin is, with tokens or without: a page of another site must not read anything
through a browser that can.

Pure, apart from ``read_access``. Times are seconds since the epoch.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from slackwater.deployment.listening import is_loopback
from slackwater.model.errors import EnvironmentProblem
from slackwater.proxy.http.tokens import TOKENS_MAX, parse_token, read_private

Right = Literal["view", "operate"]
RIGHTS: Final[tuple[Right, ...]] = ("view", "operate")
COOKIE: Final = "slackwater"
SESSION_S: Final = 30 * 86_400
_COOKIE_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Access:
    """Rights by the SHA-256 digest of their token; None: there are no tokens.

    ``is_open``: without tokens also an address that other machines reach is served.
    """

    digests: Mapping[bytes, Right] | None = None
    is_open: bool = False

    def right_of(self, authorization: str | None, cookie: str | None, now_s: int) -> Right | None:
        """Return the right of a request; None if it has none.

        Without tokens everyone who is let in has ``operate``.
        """
        if self.digests is None:
            return "operate"
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            return self.right_of_token(token.strip()) if scheme.lower() == "bearer" else None
        return None if cookie is None else self._right_of_session(cookie, now_s)

    def right_of_token(self, token: str) -> Right | None:
        """Return a token's right; compared in constant time."""
        given, found = _digest(token), None
        for known, right in (self.digests or {}).items():
            if hmac.compare_digest(given, known):
                found = right
        return found

    def session(self, token: str, now_s: int) -> str:
        """Return the value of a cookie for a valid token."""
        return _session(_digest(token), now_s + SESSION_S)

    def _right_of_session(self, cookie: str, now_s: int) -> Right | None:
        expiry = cookie.partition(".")[0]
        if len(cookie) > _COOKIE_CHARS_MAX or not expiry.isdecimal() or not expiry.isascii():
            return None
        if int(expiry) <= now_s:
            return None
        found = None
        for digest, right in (self.digests or {}).items():
            known = _session(digest, int(expiry))
            if hmac.compare_digest(cookie.encode(errors="replace"), known.encode()):
                found = right
        return found


def why_not_from(host: str | None, origin: str | None, *, has_tokens: bool) -> str | None:
    """Return why a request with these headers is not answered; None if it is."""
    name = _hostname(host)
    if not has_tokens and not is_loopback(name):
        return "without tokens the host must be localhost or 127.0.0.1"
    if origin is not None and origin_netloc(origin) != (host or "").lower():
        return "requests from another origin are not answered"
    return None


def origin_netloc(origin: str) -> str | None:
    """Return host and port of an ``Origin``; None of ``null`` or what is not one."""
    try:
        found = urlsplit(origin)
    except ValueError:
        return None
    return found.netloc.lower() if found.scheme in ("http", "https") else None


def read_access(path: Path | None) -> Access:
    """Read a token file; without one there are no tokens.

    Raises:
        EnvironmentProblem: it cannot be read, others can read it, or a line is none; the message
            names file and line, never the content.
    """
    if path is None:
        return Access()
    found: dict[bytes, Right] = {}
    for number, line in enumerate(read_private(path).splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        right = next((each for each in RIGHTS if each == words[0]), None)
        if right is None or len(words) != 2:
            raise EnvironmentProblem(
                f"token file {path}:{number}: write `view TOKEN` or `operate TOKEN`"
            )
        found[_digest(parse_token(words[1], path, number))] = right
    if not 0 < len(found) <= TOKENS_MAX:
        raise EnvironmentProblem(
            f"token file {path} has {len(found)} tokens, not 1 to {TOKENS_MAX}"
        )
    return Access(found)


def _hostname(host: str | None) -> str:
    try:
        return urlsplit(f"//{host or ''}").hostname or ""
    except ValueError:
        return ""


def _session(digest: bytes, expiry: int) -> str:
    mac = hmac.new(digest, b"slackwater session %d" % expiry, hashlib.sha256)
    return f"{expiry}.{mac.hexdigest()}"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
