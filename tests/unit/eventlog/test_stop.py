"""A stop of a node while events are being converted into columns."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from beanpole.storage.files import LANE_BULK
from beanpoled.eventlog import converter as converter_module
from beanpoled.host.aio import AioHost
from tests.integration.support.processes import children
from tests.unit.eventlog.made import chance
from tests.unit.node.stage import config

# Reads its input, and never answers.
SILENT = "import sys; sys.stdin.buffer.read()"


def test_a_stop_gives_up_a_converter_that_does_not_answer_and_what_waits_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A snapshot must not be renamed before its events are in a file: see `EventLog`."""
    begun = threading.Event()
    done: list[str] = []
    before = children(os.getpid())  # of earlier tests in this process

    def start() -> subprocess.Popen[bytes]:
        begun.set()
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", SILENT], stdin=pipe, stdout=pipe)

    monkeypatch.setattr(converter_module, "_start", start)

    async def stop() -> None:
        host = AioHost(config(), asyncio.get_running_loop())

        def seal() -> None:
            with pytest.raises(OSError, match="the node stops"):
                host.encode_events(chance(1, 10, 0))
            done.append("given up")

        host.files.submit(seal, lambda _: done.append("told"), LANE_BULK)
        host.files.submit(lambda: done.append("snapshot"), lambda _: None, LANE_BULK)
        begun.wait()
        host.close_files(0.1)

    asyncio.run(stop())
    assert done == ["given up"]
    assert children(os.getpid()) == before
