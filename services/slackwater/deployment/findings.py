"""Errors and warnings about a deployment file, each with its line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from slackwater.deployment.bounds import ERRORS_SHOWN_MAX, shortened
from slackwater.deployment.yaml_lines import Document
from slackwater.deployment.yaml_lines import Path as Place
from slackwater.model.errors import DeploymentError


class Findings:
    """Collects errors and warnings with their places; reports them in the order of the file."""

    def __init__(self, document: Document, where: str) -> None:
        self._document = document
        self.where = where
        self._errors: list[tuple[int, str]] = []
        self._warnings: list[tuple[int, str]] = []
        self._ignored: tuple[Place, ...] = ()

    @contextmanager
    def ignoring(self, places: Sequence[Place]) -> Iterator[None]:
        """Add no findings at or below these places, in which errors were found before."""
        before, self._ignored = self._ignored, (*self._ignored, *places)
        yield
        self._ignored = before

    def at_line(self, line: int, reason: str) -> None:
        """Add an error of which only the line is known."""
        self._errors.append((line, f"{self.where}:{line}: {reason}"))

    def error(self, place: Place, reason: str) -> None:
        """Add an error."""
        if not self._is_ignored(place):
            self._errors.append(self._reported(place, reason))

    def warn(self, place: Place, reason: str) -> None:
        """Add a warning: valid, but perhaps unintended."""
        if not self._is_ignored(place):
            self._warnings.append(self._reported(place, reason))

    def _is_ignored(self, place: Place) -> bool:
        return any(place[: len(each)] == each for each in self._ignored)

    def any(self) -> bool:
        """Return whether there are errors."""
        return bool(self._errors)

    def warnings(self) -> tuple[str, ...]:
        """Return all warnings, in the order of the file."""
        return tuple(text for _, text in sorted(self._warnings))

    def failure(self) -> DeploymentError:
        """Return one exception with all errors, in the order of the file, up to a bound."""
        assert self._errors, "there are no errors"
        found = list(dict.fromkeys(text for _, text in sorted(self._errors)))
        shown = [shortened(text) for text in found[:ERRORS_SHOWN_MAX]]
        if len(found) > len(shown):
            shown.append(f"{self.where}: {len(found) - len(shown)} more errors")
        return DeploymentError("\n".join(shown))

    def _reported(self, place: Place, reason: str) -> tuple[int, str]:
        line = self._document.line(place)
        field = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in place).lstrip(".")
        return line, f"{self.where}:{line}: {field + ': ' if field else ''}{reason}"
