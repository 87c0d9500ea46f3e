"""A failure that a test expects, as that of a mutant, without the search for a smaller example.

Hypothesis shrinks an example that fails, in hundreds of calls. Nobody reads it if the test asks for
the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from hypothesis import Phase, settings

_AS_DRAWN: Final = (Phase.explicit, Phase.generate)


@contextmanager
def expected_to_fail(test: Callable[..., Any] | None) -> Iterator[None]:
    """Within the block the first failing example ends ``test``, if it is a property."""
    before: settings | None = getattr(test, "_hypothesis_internal_use_settings", None)
    if before is None:
        yield
        return
    _set(test, settings(before, phases=_AS_DRAWN, report_multiple_bugs=False))
    try:
        yield
    finally:
        _set(test, before)


def _set(test: Any, value: settings) -> None:
    test._hypothesis_internal_use_settings = value
