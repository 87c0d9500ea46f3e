"""Settings of a process from the environment: ``SLACKWATER_*``.

The deployment file describes the deployment; settings describe the machine, such as the broker's
address and the memory of a JVM. A command-line option takes precedence over a variable.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from slackwater.model.errors import UsageError

PREFIX = "SLACKWATER_"


class Settings(BaseSettings):
    """The settings; each field is read from ``SLACKWATER_`` and its name in capitals."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        extra="ignore",
        frozen=True,
        # Compose and unit files pass unset variables as empty values.
        env_ignore_empty=True,
    )

    bootstrap: str | None = None
    """The broker's address; unset: the one in ``run.json`` in the data directory."""
    prefix: str | None = None
    """The prefix of the deployment that a command reads; processes take it from the file."""
    kafka_config: Path | None = None
    """A properties file with the credentials for Kafka, or a folder with one for each role."""
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
    """File for a container's health check. A process touches it for each acknowledged heartbeat
    while it is ready, a node while all that is placed on it is ready."""
    alertmanager_url: SecretStr | None = None
    """Where ``slackwater notify`` posts alerts: the base of Alertmanager's API."""
    webhook_url: SecretStr | None = None
    """Where ``slackwater notify`` posts each change of an alert."""
    webhook_token_file: Path | None = None
    """A file with the bearer token for the webhook."""
    truncate_every_s: float = Field(default=60.0, gt=0)
    """Seconds between truncations of the internal logs."""
    reread_s_max: float = Field(default=1.0, gt=0)
    """A root stores its state when a start would read for longer; seconds."""

    @property
    def log_level_number(self) -> int:
        """The level as a number of the logging module."""
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
