"""The prompt of ``slackwater sql``: a statement may have several lines, and ends with a semicolon.

History is in the data directory. Completion has the keywords, and the streams and queries that run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from slackwater.cli.common import emit, warn
from slackwater.cli.statements.run import StatementRunner
from slackwater.model.errors import SlackwaterError
from slackwater.primitives.aggregates import AGGREGATES
from slackwater.sql.cursor import INTERVAL_UNITS
from slackwater.sql.parser import KEYWORDS
from slackwater.sql.tokens import is_complete

_BEGUN: Final = re.compile(r'[\w"-]*$')
HISTORY: Final = "sql-history"
COMPLETED: Final = (
    *KEYWORDS,
    *("AS", "FROM", "WHERE", "GROUP BY window_start, key", "EMIT WITHIN INTERVAL", "EMIT FINAL"),
    *("EMIT CHANGES", "OR REPLACE", "QUERY", "QUERIES", "STREAM", "STREAMS", "TABLE", "TUMBLE("),
    *("HOP(", "UNION ALL", "JOIN", "WITHIN", "WITH (", "COLUMNS(*)", "AND", "BETWEEN", "IS NULL"),
    *INTERVAL_UNITS,
    *(f"{name}(" for name in AGGREGATES),
    *("quantile(", "top(", "window_start", "window_end", "key"),
)


class StatementCompleter(Completer):
    """Completes the word before the cursor; names that need them get double quotes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield what begins with the word before the cursor, in any case."""
        begun = _BEGUN.findall(document.text_before_cursor)[0]
        if not begun:
            return
        for each in (*self.names, *COMPLETED):
            if each.lower().startswith(begun.lower().lstrip('"')) and each != begun:
                shown = f'"{each}"' if "-" in each else each
                yield Completion(shown, start_position=-len(begun))


def run_prompt(runner: StatementRunner, directory: Path) -> None:
    """Run statements until the end of input (Ctrl-D); an error does not end the prompt."""
    history: History = InMemoryHistory()
    if directory.is_dir():
        history = FileHistory(directory / HISTORY)
    completer = StatementCompleter(_names(runner))
    session: PromptSession[str] = PromptSession(
        history=history,
        completer=completer,
        complete_while_typing=False,
        multiline=True,
        key_bindings=key_bindings(),
        prompt_continuation="   ... ",
    )
    emit("A statement ends with ; and Enter. Ctrl-D ends.")
    while True:
        try:
            text = session.prompt("sql> ")
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        run_one(runner, text)
        completer.names = _names(runner)


def run_one(runner: StatementRunner, text: str) -> None:
    """Run a text, and print its error."""
    try:
        runner.run(text, "sql")
    except SlackwaterError as error:
        warn(error.message)
    except KeyboardInterrupt:
        warn("interrupted")


def key_bindings() -> KeyBindings:
    """Return what Enter does: a new line, or the end of a complete text."""
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return bindings


def _names(runner: StatementRunner) -> list[str]:
    streams, queries = runner.names()
    return [*streams, *queries]
