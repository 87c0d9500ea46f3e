"""Logging: one line per event on stderr, with the process's name, without secrets.

    2026-03-15T08:47:28.545Z WARNING orderer/climate.0.a slackwater.runtime.service.clock: the
    system's ...

`slackwater up` runs a dozen processes whose lines go to one terminal and to one file each. Every
line therefore names its process, and a traceback is folded into the line of its event. In a process
with parts (streams, fragments), a thread or task that works for one of them logs under the part's
name (``named``). The standard library does all of this. Structured JSON would serve only programs,
which read heartbeats instead.
"""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, Final

# Libraries whose messages below WARNING, about connections and rebalances, are not logged.
QUIET = ("aiokafka", "faust", "mode", "kafka", "py4j", "asyncio", "urllib3")

CLIENTS = ("aiokafka", "faust", "slackwater.runtime.logs.kafka.client")

_SECRET = re.compile(
    r"(?P<before>(?:password|passwd|secret|token|api[_.-]?key)[\"']?\s*[=:]\s*[\"']?)"
    r"(?P<value>[^\s\"',;&]+)",
    re.IGNORECASE,
)
_CREDENTIALS = re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/:@]*:)(?P<value>[^\s/@]+)(?=@)")


_NAME: Final[ContextVar[str]] = ContextVar("name of the part", default="")


@contextmanager
def named(part: str) -> Iterator[None]:
    """Log under the name of this part, in this thread or task, inside the block."""
    token = _NAME.set(part)
    try:
        yield
    finally:
        _NAME.reset(token)


class OneLineFormatter(logging.Formatter):
    """Formats an event as one line: UTC time, level, process or part of it, logger, message."""

    def __init__(self, process: str) -> None:
        super().__init__("%(asctime)s %(levelname)s %(part)s %(name)s: %(message)s")
        self._process = process

    def formatTime(  # noqa: N802 -- the base class's name
        self, record: logging.LogRecord, datefmt: str | None = None
    ) -> str:
        """The time of the event, in UTC and milliseconds."""
        at = datetime.fromtimestamp(record.created, UTC)
        return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def format(self, record: logging.LogRecord) -> str:
        """The event as one line, its traceback folded in and secrets removed."""
        record.part = _NAME.get() or self._process
        lines = (line.strip() for line in super().format(record).splitlines())
        return without_secrets(" | ".join(line for line in lines if line))


class Repeats(logging.Filter):
    """Passes a repeated message of a client library once in ``every_s``, with a count of the rest.

    While a broker is unreachable some clients report each of forty attempts a second.
    """

    every_s: Final = 10.0
    messages_max: Final = 1_000

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        if not record.name.startswith(CLIENTS):
            return True
        what = (record.name, str(record.msg))
        passed_at, suppressed = self._seen.get(what, (-self.every_s, 0))
        if record.created - passed_at < self.every_s:
            self._seen[what] = (passed_at, suppressed + 1)
            return False
        if len(self._seen) >= self.messages_max:
            self._seen.clear()
        self._seen[what] = (record.created, 0)
        if suppressed:
            record.msg = f"{record.msg} (and {suppressed} more like it)"
        return True


def without_secrets(text: str) -> str:
    """Replace values after `password=` and similar keys, and passwords in addresses."""
    return _CREDENTIALS.sub(r"\g<before>***", _SECRET.sub(r"\g<before>***", text))


def set_up_logging(
    process: str, *, level: int = logging.INFO, stream: IO[str] | None = None
) -> None:
    """Log to stderr from this process; may be called again with another name."""
    handler = logging.StreamHandler(stream if stream is not None else sys.stderr)
    handler.setFormatter(OneLineFormatter(process))
    handler.addFilter(Repeats())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(level, logging.WARNING))
