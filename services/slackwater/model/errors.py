"""Errors that end a command, and the exit code that each one ends it with.

A user's mistake and a machine's lack are told in one sentence, without a traceback: the command
line prints `str(error)` and exits with `error.exit_code`. Any other exception is a fault of ours
and keeps its traceback. A bad record from a peer (`MalformedRecordError`) ends no command: whoever
reads records drops it, or puts VOID in its place.
"""

from typing import ClassVar


class SlackwaterError(Exception):
    """An expected failure: one sentence that names the place and, where it can, the repair."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        assert message, "an error without a sentence explains nothing"
        super().__init__(message)
        self.message = message


class CheckFailed(SlackwaterError):
    """What was to be shown did not hold: an audit that differs, a rehearsal that did not agree."""

    exit_code = 1


class DeploymentError(SlackwaterError):
    """The deployment file, or data that contradicts it: unknown column, unknown field."""

    exit_code = 2


class UsageError(SlackwaterError):
    """A bad option, a bad fault, an unknown target."""

    exit_code = 2


class EnvironmentProblem(SlackwaterError):
    """What the machine lacks: Java, jars, a port, a broker, a topic, room on the disk at start."""

    exit_code = 3


class HeldTooMuchError(SlackwaterError):
    """A session keeps more in memory than rule-12 lets it: a fault of ours that its life ends with.

    ``held`` and ``bound`` are bytes of one input.
    """

    exit_code = 1

    def __init__(self, fragment: str, held: int, bound: int) -> None:
        super().__init__(
            f"{fragment} keeps {held} bytes of an input without need, of {bound} that it may keep:"
            " it is built anew from its logs"
        )
        self.held = held
        self.bound = bound


class MalformedRecordError(SlackwaterError):
    """Bytes from a log that are no record: damaged, or of another schema.

    ``where`` names the place as the reader knows it (topic, partition and offset), ``reason`` what
    is wrong with the bytes.
    """

    exit_code = 1

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(f"{where or 'a record'}: {reason}")
        self.where = where
        self.reason = reason
