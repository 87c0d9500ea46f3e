"""OAuth 2.0 client credentials. ``oauth.py`` exchanges them for tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Client credentials and the address of the token endpoint."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
