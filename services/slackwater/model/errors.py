"""Errors that end a command, each with its exit code.

User errors and problems of the environment are reported in one sentence, without a traceback: the
command line prints `str(error)` and exits with `error.exit_code`. Any other exception is a bug and
keeps its traceback. A malformed record (`MalformedRecordError`) ends no command: its reader drops
the record or replaces it by VOID.
"""

from typing import ClassVar, Final

SUPERSEDED_CODE: Final = 5
"""Exit code of a fragment that stays down, since another copy has a greater placement number."""


class SlackwaterError(Exception):
    """An expected failure: one sentence with the place and, where possible, the remedy."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str) -> None:
        assert message, "an error needs a message"
        super().__init__(message)
        self.message = message


class CheckFailed(SlackwaterError):
    """A failed check: an audit or a rehearsal whose results differ."""

    exit_code = 1


class DeploymentError(SlackwaterError):
    """An error in the deployment file, or data that contradicts it: unknown column or field."""

    exit_code = 2


class UsageError(SlackwaterError):
    """An invalid option, an invalid fault, an unknown target."""

    exit_code = 2


class EnvironmentProblem(SlackwaterError):
    """A missing resource: Java, jars, a port, a broker, a topic, disk space at start."""

    exit_code = 3


class HeldTooMuchError(SlackwaterError):
    """A session holds more memory than allowed, which is a bug and ends the session (rule-12).

    ``held`` and ``bound`` are bytes of one input.
    """

    exit_code = 1

    def __init__(self, fragment: str, held: int, bound: int) -> None:
        super().__init__(
            f"{fragment} keeps {held} bytes of an input that it does not need yet; the limit is"
            f" {bound} bytes: restarting from its logs"
        )
        self.held = held
        self.bound = bound


class SupersededError(SlackwaterError):
    """Another copy of a fragment has a greater placement number, so this one stays down (trace-17).

    ``placement`` is the number of the copy that stays down.
    """

    exit_code = SUPERSEDED_CODE

    def __init__(self, message: str, placement: int) -> None:
        super().__init__(message)
        self.placement = placement


class MalformedRecordError(SlackwaterError):
    """Bytes from a log that are not a valid record: damaged, or of another schema.

    ``where`` is the place (topic, partition and offset), ``reason`` the defect.
    """

    exit_code = 1

    def __init__(self, where: object, reason: str) -> None:
        super().__init__(f"{where or 'a record'}: {reason}")
        self.where = where
        self.reason = reason
