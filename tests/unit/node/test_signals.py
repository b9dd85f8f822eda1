"""The signals of a node that does not run yet, or not any more."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from beanpoled.host.aio import AioHost
from tests.unit.node.stage import config

LATE = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
TIMEOUT_S = 60.0
# A node that gets such signals while it reads its disk.
EARLY = """
import os, signal, sys
from beanpoled import main

def read_disk(node):
    node.close()
    for name in os.environ["SIGNALS"].split():
        os.kill(os.getpid(), getattr(signal, name))
    print("has read it")

main.uvloop.run = read_disk
main.main()
"""


def signalled(tmp_path: Path, names: str) -> subprocess.CompletedProcess[str]:
    """Start a node that gets these signals while it reads its disk."""
    words = "--cluster dev --node-id a --members a=127.0.0.1:1/127.0.0.1:2 "
    words += "--peer-listen 127.0.0.1:1 --grpc-listen 127.0.0.1:2 --http-listen 127.0.0.1:3"
    line = [sys.executable, "-c", EARLY, *words.split(), "--data-dir", str(tmp_path)]
    environment = {**os.environ, "SIGNALS": names}
    return subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.slow
def test_an_early_signal_does_not_end_the_process(tmp_path: Path) -> None:
    """SIGUSR1, to drain, killed a node that still read its disk."""
    done = signalled(tmp_path, "SIGHUP SIGUSR1 SIGUSR2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "has read it\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_an_early_stop_ends_the_process_at_once(name: str, tmp_path: Path) -> None:
    """As process 1 of a container a node missed it, and was killed when it served."""
    done = signalled(tmp_path, name)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "" and "stopped before its disk was read" in done.stderr


def test_a_late_signal_does_not_end_the_process() -> None:
    """A reload after the end of the loop's threads made a good stop one with status 1."""
    told: list[str] = []

    async def stop() -> None:
        host = AioHost(config(), asyncio.get_running_loop())
        host.handle_signals(
            lambda: told.append("stop"),
            lambda _: told.append("drain"),
            lambda: told.append("reload"),
        )
        host.exit()
        await host.wait_for_exit()
        for one in LATE:
            os.kill(os.getpid(), one)
        await asyncio.get_running_loop().shutdown_default_executor()  # signals come meanwhile
        host.close_files()

    before = [signal.getsignal(one) for one in LATE]
    try:
        uvloop.run(stop())
        for one in LATE:
            os.kill(os.getpid(), one)
    finally:
        for one, handler in zip(LATE, before, strict=True):
            signal.signal(one, handler)
    assert told == []
