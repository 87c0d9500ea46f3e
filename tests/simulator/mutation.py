"""A mutant: a deliberate fault, applied within a block, and the test that must detect it."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import sys
import tempfile
import textwrap
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, Final, NamedTuple

import orjson
import pytest
from tests.simulator.plans import Plan
from tests.simulator.run import check_plan
from tests.support.expected_failures import expected_to_fail

FOUND: Final = Path(__file__).with_name("found.json")
NOTICED: Final = (AssertionError, pytest.fail.Exception)
"""Exceptions of a test that detects a fault; the second one: an expected exception was not
raised."""


class Edit(NamedTuple):
    """Replace ``old`` by ``new`` in the text of ``target`` (module:function or module:Class.f)."""

    target: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault, and the scenario that must detect it (module:function, and its arguments)."""

    name: str
    trace: str
    edits: tuple[Edit, ...]
    scenario: str = ""
    """The scenario that detects it; without one, the plan of its name in ``found.json`` does."""
    arguments: tuple[object, ...] = ()

    def __str__(self) -> str:
        """Return the name of its test."""
        return f"{self.trace}-{self.name}"

    @property
    def plan(self) -> Plan:
        """Return the plan that a seed once found."""
        return Plan.from_json(orjson.dumps(found_plans()[str(self)]).decode())

    @property
    def caught_by(self) -> str:
        """Name the scenario, or the guarantee that the plan violates."""
        if self.scenario:
            module, _, function = self.scenario.rpartition(".")[2].partition(":")
            return f"{module}: {function}"
        return "a plan that seeds found"

    @property
    def function(self) -> Callable[..., object] | None:
        """Return the scenario; None if a plan detects it."""
        if not self.scenario:
            return None
        module, _, name = self.scenario.partition(":")
        found: Callable[..., object] = getattr(importlib.import_module(module), name)
        return found

    def run(self) -> None:
        """Run the scenario, or the plan, which must fail."""
        scenario = self.function
        if scenario is None:
            check_plan(self.plan)
        else:
            call(scenario, *self.arguments)


def call(scenario: Callable[..., object], *arguments: object) -> None:
    """Run a test outside of pytest, perhaps a coroutine, with ``monkeypatch`` and ``tmp_path``."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        fixtures = {"monkeypatch": patch, "tmp_path": Path(folder)}
        names = inspect.signature(scenario).parameters
        wanted = {name: fixtures[name] for name in names if name in fixtures}
        if wanted:  # which may stand anywhere among the parameters
            given = dict(zip((n for n in names if n not in wanted), arguments, strict=False))
            running = scenario(**given, **wanted)
        else:
            running = scenario(*arguments)
        if inspect.iscoroutine(running):
            asyncio.run(_without_log(running))


async def _without_log(running: Coroutine[Any, Any, None]) -> None:
    """Log no error of a task that nobody awaits: a mutant makes many.

    They are logged when the task is collected, perhaps while a module is parsed. Python 3.11 parses
    the lines of the traceback, and the outer parser then fails.
    """
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    await running


def found_plans() -> dict[str, Any]:
    """Return the plans of ``found.json`` by mutant."""
    plans: dict[str, Any] = orjson.loads(FOUND.read_bytes())
    return plans


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Apply the fault within the block."""
    # A module that is first imported with the fault would keep it for later mutants.
    scenario = mutant.function
    undo: list[Callable[[], None]] = []
    try:
        for edit in mutant.edits:
            undo += _apply(edit)
        with expected_to_fail(scenario):
            yield
    finally:
        for act in reversed(undo):
            act()


def _apply(edit: Edit) -> list[Callable[[], None]]:
    module_name, _, path = edit.target.partition(":")
    module = importlib.import_module(module_name)
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part)
    raw = inspect.getattr_static(owner, name)
    function = _function_of(raw)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(edit.old) == 1, f"{edit.target} has {text.count(edit.old)} times {edit.old!r}"
    scope: dict[str, Any] = {}
    exec(
        compile(text.replace(edit.old, edit.new), edit.target, "exec"), function.__globals__, scope
    )
    changed = scope[name]
    places = [owner] if owners else _importers(name, raw)
    return [_put(place, name, changed, raw) for place in places]


def _function_of(raw: Any) -> FunctionType:
    if isinstance(raw, property):
        assert isinstance(raw.fget, FunctionType)
        return raw.fget
    if isinstance(raw, staticmethod):
        raw = raw.__func__
    assert isinstance(raw, FunctionType)
    return raw


def _importers(name: str, value: object) -> list[Any]:
    """Return every module that has imported this function."""
    return [m for m in list(sys.modules.values()) if vars(m).get(name) is value]


def _put(place: Any, name: str, new: Any, old: Any) -> Callable[[], None]:
    setattr(place, name, new)
    return lambda: setattr(place, name, old)
