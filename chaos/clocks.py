"""Step the wall clocks of nodes: each node's preloaded library maps a file with its offset."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

from chaos.nemesis import NODES

SHIM: Final = Path(__file__).with_name("clock_shim.c")


class Clocks:
    """The wall clocks of the nodes: a file each, mapped by a preloaded library."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "clock_shim.so"
        compiler = shutil.which("gcc") or shutil.which("cc")
        self.works = compiler is not None
        if compiler:
            command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(self._library), str(SHIM)]
            subprocess.run([*command, "-ldl"], check=True)
            for number in NODES:
                self.shift(number, 0.0)

    def shift(self, number: int, seconds: float) -> None:
        """Set a node's wall clock ahead of the true time, from now on."""
        path = self._path(number)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.write(struct.pack("=q", round(seconds * 1e9)))

    def prefix(self, number: int) -> list[str]:
        """Return the prefix of a node's command line."""
        if not self.works:
            return []
        return ["env", f"LD_PRELOAD={self._library}", f"SOAK_CLOCK_FILE={self._path(number)}"]

    def _path(self, number: int) -> Path:
        return self._directory / f"clock-{number}"
