"""Read a backup image of a cluster from one of its nodes, and verify each chunk.

The caller stores the chunks, and decides which node to try next.
"""

import math
import threading
import time
from collections.abc import Iterator
from typing import Final

import grpc
from crc32c import crc32c

from beanpole.client.rpc import is_refused, words_of
from beanpole.errors import ClientError
from beanpole.pb import backup_pb2, backup_pb2_grpc

# A node takes at most 60 s for its snapshot; a node that is silent for longer hangs.
SILENCE_MAX_S: Final = 90.0
_LOOK_S: Final = 1.0


class Broken(ClientError):
    """The image is missing, incomplete or corrupt; another node may have a good one."""


class TooOld(Broken):
    """The node runs a release without backups, and will not have one until it is upgraded."""


class Stream:
    """A stream of the chunks of an image.

    Attributes:
        about: the cluster and the position of the image; set by the constructor.
    """

    def __init__(self, address: str, channel: grpc.Channel) -> None:
        """Request an image from a node, and wait until it begins.

        Args:
            address: the address of the node, for messages.
            channel: the channel to that node.

        Raises:
            Broken: the node does not answer, or has no image.
            TooOld: its release has no backups.
            ClientError: the caller lacks the right, at every node.
        """
        self._address = address
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
        """Yield the chunks of the image; when the iterator ends, the image is complete.

        Raises:
            Broken: the node is lost, or a chunk or the image as a whole fails its check.
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
                self._heard_s = math.inf  # the time of the caller is not the node's silence
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
            silent = f"it said nothing for {SILENCE_MAX_S:.0f} s"
            words = silent if self._silent else words_of(error)
            if is_refused(error):
                raise ClientError(f"{self._address}: {words}") from None
            old = error.code() == grpc.StatusCode.UNIMPLEMENTED
            raise (TooOld if old else Broken)(f"{self._address}: {words}") from None
        self._heard_s = time.monotonic()
        return message

    def _watch(self) -> None:
        """Cancel the call if the node stops without closing its connection."""
        while not self._ended.wait(_LOOK_S):
            if time.monotonic() - self._heard_s > SILENCE_MAX_S:
                self._silent = True
                self._call.cancel()
                return
