"""A process that answers as a node of a local cluster, without being one: a double for `up`.

Run as `python fake_process.py node.toml`.
"""

import asyncio
import os
import signal
import sys

from beanpoled.config import node as config
from beanpoled.rpc.admin import RpcServer
from beanpoled.rpc.peer import PeerClient
from tests.unit.beanpoled.fakes import FakeView, trust_of


def say(words: str) -> None:
    """Write to the log, unbuffered."""
    sys.stdout.write(words)
    sys.stdout.flush()


async def serve(path: str) -> None:
    """Serve until SIGTERM."""
    told = config.load(path, {}, {})
    view = FakeView(told.node_id, tuple(told.members))
    server = RpcServer(view, PeerClient({}, trust_of()), trust_of())
    await server.start(told.grpc_listen)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    say("serving\n")
    await ended.wait()
    await server.stop(0)
    say("ended\n")


if __name__ == "__main__":
    if "refuse" in os.environ:
        sys.exit("fake: the log is damaged")
    asyncio.run(serve(sys.argv[1]))
