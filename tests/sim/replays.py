"""Repeat a simulation in processes with different hash seeds."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HASH_SEEDS: Final = ("1", "2")


def outputs(module: str, seed: int) -> list[list[str]]:
    """Return the lines that `python -m MODULE SEED` prints under each hash seed."""
    return [
        subprocess.run(
            [sys.executable, "-m", module, str(seed)],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for hash_seed in HASH_SEEDS
    ]
