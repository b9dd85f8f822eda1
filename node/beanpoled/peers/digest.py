"""The canonical digest of the machine, computed in slices of the loop's time.

The log asks for it (DIGEST), and `agreement` compares it with those of other members. The bytes of
an image are defined in `core.image.image`.
"""

from collections.abc import Callable

from crc32c import crc32c

from beanpole.core.image.image import Image
from beanpole.core.machine import Machine
from beanpole.pace import Pace
from beanpoled.peers.agreement import ImageDigest


class Digest:
    """The digest that the log asked for last, while it is being computed."""

    def __init__(self, now_us: Callable[[], int], done: Callable[[ImageDigest], None]) -> None:
        """Begin idle; `done` receives index, digest and machine version of each digest."""
        self._done = done
        self._image: Image | None = None
        self._index = 0
        self._digest = 0
        self._pace = Pace(now_us)

    @property
    def in_progress(self) -> bool:
        """Whether a digest is being computed."""
        return self._image is not None

    def begin(self, machine: Machine) -> None:
        """Begin a digest of the machine's present state, and drop one in progress."""
        self.drop()
        self._index, self._digest, self._image = machine.index, 0, Image(machine)

    def slice(self) -> None:
        """Continue the digest in progress, if it is time."""
        if self._image is not None:
            self._pace.slice(self._add_chunk)

    def _add_chunk(self) -> bool:
        """Add one chunk of the image, and return whether more may follow."""
        image = self._image
        assert image is not None
        chunk = image.next_chunk()
        if chunk is None:
            self.drop()
            self._done((self._index, self._digest, image.version))
            return False
        self._digest = crc32c(chunk, self._digest)
        return True

    def drop(self) -> None:
        """Drop the digest in progress, if any."""
        if self._image is not None:
            self._image.close()
            self._image = None
