"""Debian's beanstalkd, the reference that the differential test compares with."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.integration.support.ports import free_port
from tests.integration.support.processes import Process


def beanstalkd_path() -> str | None:
    """Return the path of beanstalkd; None if it is not installed."""
    return shutil.which("beanstalkd")


class Beanstalkd:
    """One beanstalkd, in memory unless the arguments say otherwise."""

    def __init__(self, directory: Path, arguments: Sequence[str] = ()) -> None:
        path = beanstalkd_path()
        assert path, "beanstalkd is not installed (Debian: apt-get install beanstalkd)"
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        command = [path, "-l", "127.0.0.1", "-p", str(port), *arguments]
        self.process = Process(command, directory / "beanstalkd.log")
        self.process.wait_until_serving(self.address)

    def close(self) -> None:
        self.process.kill()
