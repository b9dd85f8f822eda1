"""Takes an image of a cluster from one of its nodes, each part checked as it comes.

What becomes of the parts, and at which node it is tried next, is the caller's business.
"""

import math
import threading
import time
from collections.abc import Iterator
from typing import Final

import grpc
from crc32c import crc32c

from beanpole.client.rpc import words_of
from beanpole.errors import ClientError
from beanpole.pb import backup_pb2, backup_pb2_grpc

# A node has 60 s for its snapshot; one that says nothing for longer hangs.
SILENCE_MAX_S: Final = 90.0
_LOOK_S: Final = 1.0


class Broken(ClientError):
    """An image did not come, or not whole; another node may give one."""


class Stream:
    """An image on its way.

    Attributes:
        about: whose image it is, and up to where; it is there when the stream is.
    """

    def __init__(
        self, address: str, channel: grpc.Channel, silence_s: float = SILENCE_MAX_S
    ) -> None:
        """Ask a node, and wait until its image begins.

        Args:
            address: of the node, for messages.
            channel: to that node.
            silence_s: how long it may say nothing.

        Raises:
            Broken: the node does not answer, or refuses.
        """
        self._address = address
        self._silence_s = silence_s
        self._heard_s = time.monotonic()
        self._ended = threading.Event()
        self._silent = False
        self._call = backup_pb2_grpc.BackupStub(channel).Take(backup_pb2.TakeRequest())
        threading.Thread(target=self._watch, daemon=True).start()
        try:
            first = self._next()
            if not first.HasField("about"):
                raise Broken(f"{address}: the image does not begin")
        except BaseException:
            self.close()
            raise
        self.about: backup_pb2.BackupAbout = first.about

    def chunks(self) -> Iterator[bytes]:
        """Yield the chunks of the image; after the last one it is known to be whole.

        Raises:
            Broken: the node has gone, or sends what cannot be.
        """
        count = check = 0
        try:
            while True:
                message = self._next()
                if message.HasField("end"):
                    break
                if crc32c(message.data) != message.crc32c:
                    raise Broken(f"{self._address}: a chunk does not have its checksum")
                count, check = count + 1, crc32c(message.data, check)
                self._heard_s = math.inf  # what the caller does with it may take its time
                yield message.data
                self._heard_s = time.monotonic()
            if (message.end.chunks, message.end.crc32c) != (count, check):
                raise Broken(f"{self._address}: {count} chunks of {message.end.chunks} came")
        finally:
            self.close()

    def close(self) -> None:
        """End the call; allowed at any time."""
        self._ended.set()
        self._call.cancel()

    def _next(self) -> backup_pb2.TakeReply:
        try:
            message: backup_pb2.TakeReply = next(self._call)
        except StopIteration:
            raise Broken(f"{self._address}: the image ends before its end") from None
        except grpc.RpcError as error:
            silent = f"it said nothing for {self._silence_s:.0f} s"
            words = silent if self._silent else words_of(error)
            raise Broken(f"{self._address}: {words}") from None
        self._heard_s = time.monotonic()
        return message

    def _watch(self) -> None:
        """End the call of a node that stopped without closing its connection."""
        while not self._ended.wait(_LOOK_S):
            if time.monotonic() - self._heard_s > self._silence_s:
                self._silent = True
                self._call.cancel()
                return
