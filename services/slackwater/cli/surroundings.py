"""Errors of the machine, such as a full disk: no faults of slackwater, so without a traceback."""

from __future__ import annotations

import errno
from typing import Final

_REMEDIES: Final = {
    errno.ENOSPC: "make room on this disk, then repeat the command",
    errno.EDQUOT: "remove files of this user, then repeat the command",
    errno.EROFS: "choose another directory",
    errno.ENOTDIR: "choose another path",
    errno.EEXIST: "choose another path",
    errno.EISDIR: "choose another path",
    errno.EACCES: "run the command as the owner of these files",
    errno.EPERM: "run the command as the owner of these files",
    errno.EMFILE: "raise the limit with `ulimit -n`",
    errno.EIO: "the disk is faulty",
}


def what_to_do(error: OSError) -> str | None:
    """Return an error of the machine as one sentence with a remedy; None for any other error."""
    remedy = _REMEDIES.get(error.errno or 0)
    if remedy is None:
        return None
    where = "" if error.filename is None else f"{error.filename}: "
    return f"{where}{error.strerror}: {remedy}"
