"""A scanner of JSON messages in machine code: at most a tenth of a microsecond per message.

The scanner accepts only messages that it can parse with certainty, and leaves the others to the
definition, ``JsonReader.reading_of``, so that values and reasons of quarantine cannot differ. A
test compares the two over generated messages, and mutants show that the test detects a difference
of one bit.

numba compiles it. Without numba, or without a folder for the machine code, ``scanner_of`` returns
None, and the reader parses all messages as it does those that the scanner leaves.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from slackwater.model.deployment import StreamSpec

if TYPE_CHECKING:
    from slackwater.formats.scan.scanner import Scanner

_log = logging.getLogger(__name__)


def scanner_of(spec: StreamSpec) -> Scanner | None:
    """Return the scanner of the stream's messages; None if there is none.

    The first call in a process loads the machine code: 0.7 s, or 10 s if it must be compiled.
    """
    try:
        from slackwater.formats.scan.plan import UnsupportedSpec
        from slackwater.formats.scan.scanner import Scanner
    except Exception as error:  # noqa: BLE001 -- whatever hinders it, messages are read
        _log.warning("no scanner, JSON is read at a lower rate: %s", error)
        return None
    try:
        return Scanner(spec)
    except UnsupportedSpec as why:
        _log.info("stream %s is read without the scanner: %s", spec.name, why)
        return None
