"""A double of a node that sends the image of the recorded backup, for `beanpole backup`."""

from collections.abc import Iterator

from beanpole.core.image.contents import Contents
from beanpole.pb import backup_pb2
from beanpole.storage.backups import Reader
from tests.unit.releases.backup import FIXTURE


class Image:
    """Sends the recorded image in the way that `client.backup.Stream` receives it from a node."""

    def __init__(self, address: str, *_: object) -> None:
        with FIXTURE.open("rb") as stream:
            reader = Reader(stream, "FIXTURE")
            self._chunks = list(reader.chunks())
        contents = Contents()
        for chunk in self._chunks:
            contents.take(chunk)
        self.about = backup_pb2.BackupAbout(
            cluster="test", node=address, members=["n0"], index=contents.index, term=3
        )

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks

    def close(self) -> None:
        """Close nothing."""
