"""Settings of a process from the environment: ``SLACKWATER_*``.

What describes a deployment is in its file; what describes the machine it runs on (where the broker
is, how much memory a JVM may take) is here. A command-line option wins over a variable.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from slackwater.model.errors import UsageError

PREFIX = "SLACKWATER_"


class Settings(BaseSettings):
    """Each field is the variable of that name in capitals, after ``SLACKWATER_``."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        # Compose and unit files pass on what is not set as an empty value.
        env_ignore_empty=True,
    )

    bootstrap: str | None = None
    """Where the broker answers; unset: what ``run.json`` in the data directory says."""
    prefix: str | None = None
    """The prefix of the deployment that a command looks at; its file says it to its processes."""
    kafka_config: Path | None = None
    """A file of properties that says how to get into Kafka, or a folder with one for each role."""
    data_dir: Path = Path(".slackwater")
    """Spools, logs, and the embedded broker's data."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    broker_heap_mib_max: int = Field(default=512, ge=128)
    """The embedded broker's heap."""
    aggregator_heap_mib_max: int = Field(default=1024, ge=256)
    """The heap of an aggregator's JVM."""
    aggregator_mode: Literal["real-time", "micro-batch"] = "real-time"
    """Micro-batch is for clusters with fewer task slots than partitions."""
    health_file: Path | None = None
    """Touched with each heartbeat that says "ready" and was taken; a container's check reads it."""
    truncate_every_s: float = Field(default=60.0, gt=0)
    """How often the internal logs are truncated."""

    @property
    def log_level_number(self) -> int:
        """As the logging module wants it."""
        return logging.getLevelNamesMapping()[self.log_level]


@cache
def settings() -> Settings:
    """The settings of this process, read once; ``UsageError`` names a variable that is wrong."""
    try:
        return Settings()
    except ValidationError as error:
        first = error.errors()[0]
        name = PREFIX + ".".join(str(part) for part in first["loc"]).upper()
        raise UsageError(f"environment variable {name}: {first['msg']}") from error
