"""Alert rules as values: what the section ``alerts`` of the deployment file declares.

A rule belongs to one query, whose definition has it. A rule on values has a condition over a
query's rows, for each key by itself. A rule on a stream is about what windows lack.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Tentative = Literal["wait", "act"]
"""What a tentative row means to a rule: nothing, or it may begin an alert."""
WINDOWS_MAX: Final = 100_000
"""Maximum of ``for``."""


@dataclass(frozen=True, slots=True)
class AlertSpec:
    """A rule: either ``when`` (a condition on rows), or ``stream`` with ``missing_us``.

    ``windows``: in how many windows in a row that a key has, ``for`` in the file.
    """

    name: str
    when: str | None = None
    windows: int = 1
    tentative: Tentative = "wait"
    stream: str | None = None
    missing_us: int | None = None

    @property
    def fingerprint(self) -> str:
        """Identifies the definition: alerts of an earlier one are not continued."""
        return hashlib.blake2b(json.dumps(self.to_json()).encode(), digest_size=8).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; defaults are omitted."""
        fields = {f.name: f.default for f in dataclasses.fields(self)}
        return {n: v for n, v in dataclasses.asdict(self).items() if v != fields[n]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AlertSpec:
        """The inverse of ``to_json``; a missing or unknown entry is a ``TypeError``."""
        return cls(**data)
