"""The program `beanpole` as operators run it. Its output is checked by the tests."""

import json
import subprocess
from typing import Any, Final

from tests.integration.support.nodes import BEANPOLE
from tests.integration.support.program import Done, ran

COMMAND_TIMEOUT_S: Final = 120.0


class Commands:
    """`beanpole` with the addresses of some nodes, which it asks in this order."""

    def __init__(self, *addresses: str) -> None:
        self.addresses = addresses

    def begin(self, words: str) -> subprocess.Popen[str]:
        """Start a command as a process, which `ended` waits for."""
        return subprocess.Popen(
            [*BEANPOLE, *words.split(), "--addr", ",".join(self.addresses)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, words: str, status: int = 0) -> str:
        """Run a command; returns its output, with its errors if it has to fail."""
        done = self._ran(words, status)
        return done.said + (done.errors if status else "")

    def json(self, words: str, status: int = 0) -> Any:
        return json.loads(self._ran(f"{words} --json", status).said)

    def _ran(self, words: str, status: int) -> Done:
        done = ran(*words.split(), "--addr", ",".join(self.addresses))
        assert done.status == status, (words, done)
        return done


def ended(process: subprocess.Popen[str], status: int = 0) -> str:
    said, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    assert process.returncode == status, (process.args, said, errors)
    return said + (errors if status else "")
