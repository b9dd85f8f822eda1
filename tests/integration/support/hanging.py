"""A node whose disk can hang: `python hanging.py FLAG ARGUMENTS-OF-BEANPOLED`.

The daemon itself has no switch for this: here its main is run with the two methods that sync a file
replaced. While the file FLAG exists they do not return, in any thread.
"""

import sys
import threading
from pathlib import Path
from typing import Any, Final

from beanpole.storage.disk_handle import DiskHandle
from beanpoled import main

# The interval between checks of the flag.
PERIOD_S: Final = 0.02

_nothing = threading.Event()


def run(flag: Path, arguments: list[str]) -> None:
    """Run a node with the given arguments, whose disk hangs while the flag exists."""
    for name in ("sync", "write_synced"):
        honest: Any = getattr(DiskHandle, name)

        def hanging(*values: Any, honest: Any = honest) -> None:
            while flag.exists():
                _nothing.wait(PERIOD_S)
            honest(*values)

        type.__setattr__(DiskHandle, name, hanging)
    sys.argv = ["beanpoled", *arguments]
    main.main()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
