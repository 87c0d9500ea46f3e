"""A program for a template: does what its argument says, and shows what it is."""

import os
import signal
import subprocess
import sys
import time


def show(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "show":
        leads = os.getsid(0) == os.getpid()
        show(sys.argv[1:], os.environ.get("SHOWN"), os.getppid(), leads)
        show(sys.stdin.read())
    elif what == "exit":
        sys.exit(int(sys.argv[2]))
    elif what == "raise":
        raise ValueError("it raises")
    elif what == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "child":
        show(subprocess.Popen(["sleep", "600"]).pid)
    time.sleep(600 if what in {"child", "sleep"} else 0)
