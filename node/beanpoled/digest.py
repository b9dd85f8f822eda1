"""The canonical digest of the machine, made in slices of the loop's time.

The log asks for it (DIGEST), the other members compare it (`peers`); what an image's bytes are is
in `core.image`.
"""

from collections.abc import Callable

from crc32c import crc32c

from beanpole.constants import REST_PER_SLICE
from beanpole.core.image import Image
from beanpole.core.machine import Machine


class Digest:
    """The digest that the log asked for last, while it is being made."""

    def __init__(self, now_us: Callable[[], int], done: Callable[[int, int], None]) -> None:
        """Make none yet; `done` will be called with the index and the digest of each."""
        self._now_us = now_us
        self._done = done
        self._image: Image | None = None
        self._index = 0
        self._digest = 0
        self._rest_until_us = 0

    @property
    def under_way(self) -> bool:
        """Whether it is still being made."""
        return self._image is not None

    def begin(self, machine: Machine) -> None:
        """Begin one of the machine as it is; one that is under way is given up."""
        self.drop()
        self._index, self._digest, self._image = machine.index, 0, Image(machine)

    def slice(self) -> None:
        """Go on, if the rest after the last slice is over. Nobody is woken: turns come anyway."""
        image, begun_us = self._image, self._now_us()
        if image is None or begun_us < self._rest_until_us:
            return
        chunk = image.next_chunk()
        now_us = self._now_us()
        self._rest_until_us = now_us + REST_PER_SLICE * (now_us - begun_us)
        if chunk is None:
            self.drop()
            self._done(self._index, self._digest)
        else:
            self._digest = crc32c(chunk, self._digest)

    def drop(self) -> None:
        """Give it up; dropping nothing does no harm."""
        if self._image is not None:
            self._image.close()
            self._image = None
