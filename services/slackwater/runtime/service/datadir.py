"""The data directory: locked by one stack at a time; holds the state that commands read.

``run.json`` names the broker and the processes, for commands and people. After the end it still has
the broker's address, because the port is kept over restarts. The lock is one of the kernel and ends
with the process that holds it, so it is never stale.

The content is readable by its owner only (0700, 0600); wider modes are corrected at the start. A
directory that also holds foreign files (a project, a temporary directory) keeps its own mode, and
only the modes of slackwater's files in it are corrected.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator

from slackwater.model.errors import DeploymentError, EnvironmentProblem
from slackwater.model.names import UNPREFIXED, Names, why_no_prefix
from slackwater.runtime.logs.cluster import Where, cluster_of
from slackwater.runtime.security.private import (
    FILE_MODE,
    close_to_others,
    make_data_directory,
    make_private,
    unusable,
    write_atomically,
)

_log = logging.getLogger(__name__)

RUN_FILE: Final = "run.json"
RUN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Limit for run.json; 10,000 processes take a tenth of it."""
LOCK_FILE: Final = "stack.lock"
PREFIX_FILE: Final = "prefix"
"""File with the deployment's prefix, one line."""
NAMES: Final = frozenset(
    {
        RUN_FILE,
        LOCK_FILE,
        PREFIX_FILE,
        f"{PREFIX_FILE}.part",
        "deployment.yaml",
        "client.properties",
        "kcat.conf",
        "logs",
        "broker",
        "proxy",
        "controller",
        "node.recorded",
        "node.recorded.part",
        "notifier.json",
        "notifier.json.part",
        "node-placements.json",
        "node-placements.json.part",
        "node-record.json",
        "node-record.json.part",
    }
    | {"aggregator", "lost+found", f"{RUN_FILE}.part", "placements.part"}
    | {"placements.json", "placements.json.part"}  # of earlier versions
)
"""Names in a directory that contains nothing but a data directory."""


class Life(BaseModel):
    """Restarts and last exit of a supervised process, since its supervisor was started."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    restarts: int = 0
    last_exit: str | None = None
    """Name of a signal, or ``code 1``; None before the first exit."""
    last_exit_at_us: int | None = None
    last_error: str | None = None
    """The last error in its log, at most 500 characters."""


class RunFile(BaseModel):
    """The contents of ``run.json``; files of the first version have no ``version``."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    version: Literal[1] = 1
    bootstrap: str
    kafka_config: str | None = None
    """Path of the file with the credentials for Kafka, never its contents."""
    deployment: str
    pid: int | None = None
    """Pid of the supervisor; None: nothing runs."""
    processes: dict[str, int] = {}
    """Pids of the processes that run now, by name."""
    lives: dict[str, Life] = {}
    """Restarts and last exit of all processes that the supervisor keeps running, by name."""
    prefix: str = ""
    site: str | None = None
    """The site of the file that runs here; None: its centre, or a file without sites."""

    @field_validator("prefix")
    @classmethod
    def _is_prefix(cls, prefix: str) -> str:
        if (reason := why_no_prefix(prefix)) is not None:
            raise ValueError(reason)
        return prefix

    @property
    def names(self) -> Names:
        """Names of the deployment's topics."""
        return Names(self.prefix)


class DataDirectory:
    """A data directory locked by this process."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: int | None = None

    def acquire(self) -> None:
        """Create the directory if necessary and lock it.

        Raises ``EnvironmentProblem`` with the holder's pid if it is locked.
        """
        assert self._lock is None
        try:
            make_data_directory(self.path)
            self._lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, FILE_MODE)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.truncate(self._lock, 0)
            os.pwrite(self._lock, str(os.getpid()).encode(), 0)
            self._close_to_others()
        except BlockingIOError:
            assert self._lock is not None
            holder = os.pread(self._lock, 20, 0).decode(errors="replace") or "unknown"
            self.release()
            raise EnvironmentProblem(
                f"another slackwater (process {holder}) runs in {self.path}: stop it, or choose"
                " another --data-dir"
            ) from None
        except OSError as error:
            self.release()
            raise unusable(self.path, error) from error

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def write_run(
        self,
        where: Where,
        deployment_path: Path,
        processes: Mapping[str, int],
        names: Names = UNPREFIXED,
        lives: Mapping[str, Life] = MappingProxyType({}),
        site: str | None = None,
    ) -> None:
        """Write ``run.json``; without processes it records that nothing runs."""
        cluster = cluster_of(where)
        config = cluster.security.given
        run = RunFile(
            bootstrap=cluster.bootstrap,
            kafka_config=None if config is None else str(config),
            deployment=str(deployment_path.resolve()),
            pid=os.getpid() if processes else None,
            processes=dict(processes),
            prefix=names.prefix,
            lives=dict(lives),
            site=site,
        )
        # The stack does not need the file, and continues if the disk is full.
        with contextlib.suppress(OSError):
            write_atomically(self.path / RUN_FILE, run.model_dump_json(indent=2) + "\n")

    def _close_to_others(self) -> None:
        inside = set(self.path.iterdir())
        ours = {path for path in inside if path.name in NAMES and path.name != "lost+found"}
        changed = close_to_others(
            [self.path] if inside <= ours | {self.path / "lost+found"} else ours
        )
        if changed:
            _log.warning(
                "%s was open to other users: %d of its files and directories are private now",
                *(self.path, changed),
            )


def keep_prefix(directory: Path, names: Names) -> None:
    """Store the prefix used with the directory; raises ``DeploymentError`` if it has another one.

    Spools and input positions of proxies belong to the topics of one deployment. A directory of an
    earlier version without prefixes counts as one without a prefix.
    """
    file = directory / PREFIX_FILE
    try:
        known: str | None = file.read_text(errors="replace").strip()
    except FileNotFoundError:
        is_old = any((directory / name).exists() for name in (RUN_FILE, "proxy"))
        known = "" if is_old else None
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be read: {error.strerror}") from error
    if known is not None and known != names.prefix:
        both = [f"prefix {prefix}" if prefix else "no prefix" for prefix in (known, names.prefix)]
        raise DeploymentError(
            f"{directory} holds a deployment with {both[0]}, but the file has {both[1]}: choose"
            " another --data-dir, or restore the prefix in the file"
        )
    if known is None or not file.exists():
        try:
            make_private(directory)
            write_atomically(file, names.prefix + "\n")
        except OSError as error:
            if not file.exists():  # else another process of the deployment has written it
                raise EnvironmentProblem(f"{file} cannot be written: {error.strerror}") from error


def read_run(path: Path) -> RunFile | None:
    """Return the contents of a data directory's ``run.json``; None if there is none.

    Raises ``EnvironmentProblem`` if the file cannot be read or is invalid.
    """
    file = path / RUN_FILE
    try:
        if file.exists() and not file.is_file():
            raise EnvironmentProblem(f"{file} is not a file: {_REPAIR}")
        with file.open("rb") as stream:
            content = stream.read(RUN_BYTES_MAX + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise EnvironmentProblem(f"{file} cannot be read: {error.strerror}") from error
    if len(content) > RUN_BYTES_MAX:
        raise EnvironmentProblem(f"{file} is larger than {RUN_BYTES_MAX} bytes: {_REPAIR}")
    try:
        return RunFile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise EnvironmentProblem(
            f"{file} is not what `slackwater up` writes ({reason}): {_REPAIR}"
        ) from error


_REPAIR: Final = "remove it; `slackwater up` writes a new one"


def is_running(path: Path) -> bool:
    """Return whether a stack runs on the directory; ``run.json`` may remain from a killed one."""
    try:
        lock = os.open(path / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
