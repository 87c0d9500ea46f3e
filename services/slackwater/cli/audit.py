"""``slackwater audit``: the stable results, once more, from the source logs."""

from __future__ import annotations

from pathlib import Path


def print_audit(bootstrap: str, data_dir: Path, query: str) -> None:
    """Placeholder until the Spark job is there."""
    raise NotImplementedError
