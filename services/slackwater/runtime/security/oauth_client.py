"""What OAuth 2.0 client credentials consist of; the tokens are fetched in ``oauth.py``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """What is exchanged for a token (OAuth 2.0 client credentials)."""

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
