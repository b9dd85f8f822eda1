"""The signals of a node that has stopped, while its process ends."""

import asyncio
import os
import signal

import uvloop

from beanpoled.host.aio import AioHost
from tests.unit.node.stage import config

LATE = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


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
