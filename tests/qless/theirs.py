"""Debian's Redis, and the Lua programs of the source packages for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Final

from tests.integration.support.ports import free_block
from tests.integration.support.processes import Process
from tests.integration.support.qless_scripts import Build
from tests.integration.support.raw import Address
from tests.qless.suites import QLESS_PY, QLESS_PY_SEED, REQLESS

# Since 6.2.7 Redis refuses scripts that change shared tables, as qless-py's does.
REFUSED: Final = (
    ("function table.extend(", "local function table_extend("),
    ("table.extend(", "table_extend("),
)


class Redis:
    """A Redis server."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_block()
        self.address: Address = f"127.0.0.1:{self._port}"

    @contextmanager
    def running(self) -> Iterator["Redis"]:
        """Run the server; kill it at the end."""
        program = which("redis-server")
        assert program, "redis-server is not installed (Debian: apt-get install redis-server)"
        port, where = str(self._port), str(self._directory)
        command = [program, "--port", port, "--save", "", "--dir", where]
        process = Process(command, self._directory / "redis.log")
        try:
            process.wait_until_serving(self.address)
            yield self
        finally:
            process.kill()


def builds() -> dict[str, Build]:
    """Return the real programs by dialect, of the dialects that Redis can run."""
    unified = (QLESS_PY / "qless" / "qless-core" / "qless.lua").read_text()
    for theirs, allowed in REFUSED:
        unified = unified.replace(theirs, allowed)
    throttles = (REQLESS / "reqless" / "lua" / "qless.lua").read_text()
    folder = QLESS_PY_SEED / "qless" / "qless-core"
    return {
        "seed": {path.stem: path.read_text() for path in folder.glob("*.lua")},
        "unified": {"unified": unified},
        "throttles": {"throttles": throttles},
    }
