"""Entry point of ``slackwater``: ends without a traceback at Ctrl-C, also during imports.

The imports of a command take a quarter of a second, and a command may import more at any time. An
exception that a signal raises within the import system may be ignored there, since it also runs
callbacks of weak references; the command would go on. The program ends at once instead, as if it
had been killed: its child processes end with it. Code in C may replace the exception of a signal by
one of its own (confluent-kafka does, while it reads a configuration); an error that follows a
Ctrl-C is therefore the Ctrl-C. When a command has ended, the interpreter joins
its threads and calls what is registered with ``atexit``; a signal then changes nothing any more.

A command may be started with a closed standard output (``slackwater up ... >&-``). Its number would
be given to the next file that is opened, and Python has no stream for it.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has ended, as in a shell: 128 and the number of the signal."""
_IMPORTS = "<frozen importlib"


class Interrupt:
    """Handler of Ctrl-C; ``has_come``: whether it was called."""

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, _signum: int, frame: FrameType | None) -> None:
        """Raise ``KeyboardInterrupt``, or end the program if it is importing."""
        self.has_come = True
        while frame is not None:
            if frame.f_code.co_filename.startswith(_IMPORTS):
                os._exit(INTERRUPTED)
            frame = frame.f_back
        raise KeyboardInterrupt


def open_standard_streams() -> None:
    """Open what is closed of standard input, output and error, as one without content."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(opened, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))


def main() -> None:
    """Run the command line."""
    open_standard_streams()
    interrupt = Interrupt()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored
        signal.signal(signal.SIGINT, interrupt)
    try:
        from slackwater.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except Exception:
        if not interrupt.has_come:
            raise
        sys.exit(INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()
