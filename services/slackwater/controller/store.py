"""The file of a controller: the object's state, the greatest view number, the incarnation.

The file has two lines, a header and the content. It is replaced atomically, and synchronised before
anything that depends on it is sent. A controller that restarts continues with greater numbers and
the same state. A file that cannot be read is never replaced: without it the controller would use
the same numbers again.
"""

from __future__ import annotations

import fcntl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from slackwater.control.control_object import greatest_view
from slackwater.control.control_state import ControlState
from slackwater.controller.wire import WireError, from_bytes, to_bytes
from slackwater.model.errors import EnvironmentProblem
from slackwater.protocols.iads.messages import SavedMembership
from slackwater.runtime.security.private import append_to, make_data_directory, write_atomically
from slackwater.runtime.service.clock import SystemClock

FILE_VERSION: Final = 1
FILE_NAME: Final = "controller.json"


@dataclass(frozen=True, slots=True)
class _Header:
    version: int
    name: str


@dataclass(frozen=True, slots=True)
class _Content:
    saved: SavedMembership
    state: ControlState


class DamagedStore(EnvironmentProblem):
    """The file of a controller has no state that this program can read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path


class Store:
    """The file of one controller, opened and locked by ``open_store``."""

    def __init__(
        self, path: Path, name: str, content: _Content, lock: BinaryIO, *, is_new: bool
    ) -> None:
        self._path = path
        self.is_new: Final = is_new
        """Whether there was no file."""
        self._header: Final = to_bytes(_Header, _Header(FILE_VERSION, name)).decode()
        self._content = content
        self._lock = lock

    @property
    def saved(self) -> SavedMembership:
        """The saved membership; its view number is at least the greatest of the state."""
        saved, state = self._content.saved, self._content.state
        return saved._replace(view_number=max(saved.view_number, greatest_view(state)))

    @property
    def state(self) -> ControlState:
        """The object's state."""
        return self._content.state

    def save_membership(self, saved: SavedMembership) -> None:
        """Save the membership; it is durable when the call returns."""
        self._save(replace(self._content, saved=saved))

    def save_state(self, state: ControlState) -> None:
        """Save the object's state; it is durable when the call returns."""
        if state is not self._content.state:
            self._save(replace(self._content, state=state))

    def close(self) -> None:
        """Unlock the directory."""
        self._lock.close()

    def _save(self, content: _Content) -> None:
        text = f"{self._header}\n{to_bytes(_Content, content).decode()}\n"
        write_atomically(self._path, text)
        self._content = content


def open_store(directory: Path, name: str) -> Store:
    """Lock the directory and read the controller's file; without a file the store is empty.

    Raises:
        EnvironmentProblem: another process has locked the directory, it cannot be created, or the
            file is damaged, of another version or of another controller.
    """
    make_data_directory(directory)
    lock = append_to(directory / "lock")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise EnvironmentProblem(f"{directory}: another controller runs in it") from None
    path = directory / FILE_NAME
    # Greater than all of a file that has been lost: the peers, which run on, refuse smaller ones.
    saved = SavedMembership(incarnation=SystemClock().now_us() // 1_000_000)
    content = _Content(saved, ControlState())
    is_new = not path.exists()
    if not is_new:
        try:
            content = _read(path, name)
        except EnvironmentProblem:
            lock.close()
            raise
    return Store(path, name, content, lock, is_new=is_new)


def _read(path: Path, name: str) -> _Content:
    try:
        first, _, rest = path.read_bytes().partition(b"\n")
        header: _Header = from_bytes(_Header, first)
        if header.version != FILE_VERSION:
            raise DamagedStore(
                path, f"version {header.version}; this program reads version {FILE_VERSION}"
            )
        if header.name != name:
            raise EnvironmentProblem(f"{path}: it is the file of controller {header.name!r}")
        content: _Content = from_bytes(_Content, rest)
    except WireError as error:
        raise DamagedStore(
            path,
            f"cannot be read ({error}); restore it, or start this controller under a new name and"
            " let the old one leave",
        ) from None
    except OSError as error:
        raise EnvironmentProblem(f"{path}: cannot be read: {error}") from None
    return content
