"""List the ways to break a cluster that work on this machine, and what the others lack.

`python -m chaos.doctor` prints a line for each and changes nothing; the exit status is 0.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from chaos import compiled_tree, power
from chaos.backends import namespaces, no_containers
from chaos.toxiproxy_server import PROGRAM, URL


def processes() -> str:
    """Return the tools that are missing for faults of clocks and disks; others need none."""
    wanted = {"gcc": "clock steps: gcc", "strace": "failing syncs: strace"}
    absent = [words for program, words in wanted.items() if shutil.which(program) is None]
    return f"without {'; '.join(absent)}" if absent else ""


def forgetful() -> str:
    try:
        power.check(Path(tempfile.gettempdir()))
    except power.Unavailable as refused:
        return str(refused)
    return ""


def toxiproxy() -> str:
    if os.environ.get(URL) or shutil.which(PROGRAM):
        return ""
    return f"with our double: there is no {PROGRAM}, and {URL} is not set"


# (name, command that uses it, function that returns why it does not work here, or only partly)
WAYS: Final[tuple[tuple[str, str, Callable[[], str]], ...]] = (
    ("processes", "make soak", processes),
    ("disks that forget", "make soak ARGS=--forgetful", forgetful),
    ("toxiproxy", "make toxics", toxiproxy),
    ("network namespaces", "make partitions", namespaces.missing),
    ("containers", "make soak-docker", no_containers),
    ("compiled nodes", "make compiled", compiled_tree.missing),
)


def main() -> int:
    """Print all lines."""
    for name, command, find in WAYS:
        print(f"{name:<20}{command:<28}{find() or 'works'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
