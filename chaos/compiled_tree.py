"""The compiled tree of `make compiled`: select it for a node, and check that it exists."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

COMPILED: Final = Path(__file__).resolve().parents[1] / "build" / "compiled"


def prefix(compiled: bool) -> list[str]:
    """Return the prefix of a node's command line, compiled or not."""
    if not compiled:
        return []
    others = os.environ.get("PYTHONPATH")
    return ["env", f"PYTHONPATH={os.pathsep.join([str(COMPILED), *([others] if others else [])])}"]


def missing() -> str:
    """Return why compiled nodes cannot run, in one line; empty if they can."""
    code = "import beanpole.core.machine as found; print(found.__file__)"
    command = [*prefix(compiled=True), sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.stdout.strip().endswith(".so"):
        return ""
    return f"there is no compiled tree in {COMPILED}: run `make compiled`, or add --no-compiled"
