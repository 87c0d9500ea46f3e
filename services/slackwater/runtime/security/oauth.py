"""Tokens for aiokafka: OAuth 2.0 client credentials (RFC 6749, section 4.4).

librdkafka and Java's client fetch tokens themselves; aiokafka requests a token from the program at
each connection. A token is reused for four fifths of its lifetime, as in the other two clients.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider

from slackwater.model.errors import EnvironmentProblem
from slackwater.runtime.security.oauth_client import OAuthClient

ANSWER_S_MAX: Final = 10.0
ANSWER_BYTES_MAX: Final = 1024 * 1024
RENEW_AFTER: Final = 0.8
"""Share of a token's lifetime after which it is replaced."""
LIFE_S_DEFAULT: Final = 60.0
"""Lifetime of a token without ``expires_in``; short, so that an expired one is soon replaced."""


class TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Provides a valid token for each connection."""

    def __init__(self, client: OAuthClient) -> None:
        self._client = client
        self._token = ""
        self._renew_at_s = 0.0

    async def token(self) -> str:
        """Return a token; a new one when the previous one expires soon."""
        if time.monotonic() >= self._renew_at_s:
            requested_s = time.monotonic()
            token, life_s = await asyncio.to_thread(fetch_token, self._client)
            self._token, self._renew_at_s = token, requested_s + RENEW_AFTER * life_s
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return the SASL extensions that are sent with the token."""
        return dict(self._client.extensions)


def fetch_token(client: OAuthClient) -> tuple[str, float]:
    """Fetch a token; return it and its lifetime (s). ``EnvironmentProblem`` contains no secret."""
    fields = {"grant_type": "client_credentials"}
    if client.scope:
        fields["scope"] = client.scope
    name, secret = (urllib.parse.quote_plus(x) for x in (client.client_id, client.client_secret))
    request = urllib.request.Request(
        client.token_url,
        urllib.parse.urlencode(fields).encode(),
        {
            "Authorization": "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode(),
            "Accept": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
            found: Any = json.loads(answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise EnvironmentProblem(f"{client.token_url} returned no token: {error.code}") from None
    except (OSError, ValueError) as error:
        raise EnvironmentProblem(f"{client.token_url} returned no token: {error}") from None
    token = found.get("access_token") if isinstance(found, dict) else None
    if not isinstance(token, str):
        raise EnvironmentProblem(f"{client.token_url} returned no token: access_token is missing")
    life_s = found.get("expires_in")
    return token, float(life_s) if isinstance(life_s, int | float) else LIFE_S_DEFAULT
