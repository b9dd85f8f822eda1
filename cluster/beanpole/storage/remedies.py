"""Remedies for errors of the operating system, for the last log line of a node.

Errors of a damaged or foreign file have their remedies where they are raised.
"""

import errno
import os
from typing import Final

_REMEDIES: Final = {
    errno.EACCES: "make it readable and writable, with all in it, for user {user}",
    errno.EPERM: "make it readable and writable, with all in it, for user {user}",
    errno.EIO: (
        "the disk is defective: replace it and proceed as for a lost disk, see 'The disk fails' "
        "in docs/operating.md"
    ),
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "make room on its disk",
    # The unit lets a node write nowhere else (deploy/systemd).
    errno.EROFS: "mount its disk writable, or name it in ReadWritePaths= of the unit of systemd",
}


def told(error: OSError) -> str:
    """Return an error in words: its cause, its file, and the remedy if one is known."""
    file = f", at {error.filename}" if error.filename else ""
    remedy = _REMEDIES.get(error.errno or 0, "").format(user=os.geteuid())
    return f"{error.strerror or error}{file}{'; ' if remedy else ''}{remedy}"
