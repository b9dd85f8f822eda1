"""Dials of members that fail leave nothing that only a full garbage collection finds."""

import asyncio
import gc
import socket
from types import FrameType
from typing import Any

import pytest
import uvloop

from beanpoled.host.dials import Dialer
from tests.unit.beanpoled.fakes import trust_of

DIALS = 5


class Loop:
    """The running loop, which finds no name."""

    def __init__(self) -> None:
        self.create_task = asyncio.get_running_loop().create_task

    async def getaddrinfo(self, name: str, port: int, **_: Any) -> list[Any]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def frames_of_dials() -> list[str]:
    frames = [one for one in gc.get_objects() if type(one) is FrameType]
    codes = [frame.f_code for frame in frames]
    return [code.co_name for code in codes if code.co_filename.endswith("host/dials.py")]


@pytest.mark.usefixtures("uncollected")
def test_a_name_that_is_not_found_leaves_no_frames() -> None:
    async def main() -> None:
        loop: Any = Loop()
        dialer = Dialer(loop, trust_of())
        failed = 0
        for _ in range(DIALS):
            try:
                await dialer.connect(asyncio.Protocol, "n1", "unknown", 1)
            except OSError:
                failed += 1
        assert (failed, frames_of_dials()) == (DIALS, [])

    uvloop.run(main())
