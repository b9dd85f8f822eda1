"""A node whose disk can hang: `python hanging.py FLAG ARGUMENTS-OF-BEANPOLED`.

The daemon itself has no switch for this: here its main is run with the methods that sync a file or
measure the free space replaced. While the file FLAG exists they do not return, in any thread; while
FLAG.space exists, the measurements do not.
"""

import sys
import threading
from pathlib import Path
from typing import Any, Final

from beanpole.storage.disk_handle import DiskHandle
from beanpole.storage.files import InlineFiles
from beanpoled import main

# The interval between checks of the flag.
PERIOD_S: Final = 0.02

_nothing = threading.Event()


def space_flag(flag: Path) -> Path:
    """Return the file that makes only the measurements of the free space hang."""
    return flag.with_name(f"{flag.name}.space")


def run(flag: Path, arguments: list[str]) -> None:
    """Run a node with the given arguments, whose disk hangs while the flag exists."""
    for owner, name, flags in (
        (DiskHandle, "sync", (flag,)),
        (DiskHandle, "write_synced", (flag,)),
        (InlineFiles, "free_bytes", (flag, space_flag(flag))),
    ):
        honest: Any = getattr(owner, name)

        def hanging(*values: Any, honest: Any = honest, flags: tuple[Path, ...] = flags) -> Any:
            while any(one.exists() for one in flags):
                _nothing.wait(PERIOD_S)
            return honest(*values)

        type.__setattr__(owner, name, hanging)
    sys.argv = ["beanpoled", *arguments]
    main.main()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
