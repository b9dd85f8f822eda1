"""Deduplication of puts by their bodies, in queues whose policy makes puts unique in a time window.

This module defines the key of such a put and its lifetime. Keys are kept in generations, like the
keys of clients (`core.keys`), but in a table of their own, so that no client's key can collide with
them.
"""

from hashlib import blake2b
from typing import Final

from beanpole.constants import JOB_ID_MAX
from beanpole.core.keys import Keys

# A put is identified by a hash of this many bytes: the chance of a collision among a million
# different bodies is below 10**-40. In its key, the number of a time interval precedes the hash.
_HASH_BYTES: Final = 24
_PIECE_BYTES: Final = 8
EQUAL_KEY_BYTES: Final = _PIECE_BYTES + _HASH_BYTES
# The value of a key is one number: the time of the put, and in the low bits the id of its job.
_ID_BITS: Final = JOB_ID_MAX.bit_length()


def joined(put_us: int, job_id: int) -> int:
    """Return the time and the job of a put packed into one number."""
    return put_us << _ID_BITS | job_id


def parted(value: int) -> tuple[int, int]:
    """Return the time and the job of a put from the number that `joined` returned."""
    return value >> _ID_BITS, value & JOB_ID_MAX


class EqualPuts(Keys):
    """The remembered puts."""

    __slots__ = ()

    def find_equal(
        self, queue: bytes, body: bytes, window_us: int, now_us: int
    ) -> tuple[int, bytes]:
        """Look for an earlier put of the same body into a queue within a window before now.

        Time is divided into intervals as long as the window, and a key is made of a body and an
        interval. So no key is ever added twice: an equal put in the same interval is always within
        the window.

        Returns:
            (the id of the earlier job, or 0, the key by which this put is to be remembered)
        """
        digest = blake2b(b"%d %d " % (window_us, len(queue)), digest_size=_HASH_BYTES)
        digest.update(queue)
        digest.update(body)
        found = digest.digest()
        piece = now_us // window_us
        key = piece.to_bytes(_PIECE_BYTES, "big") + found
        known = self.find(key)
        if not known and piece:
            known = self.find((piece - 1).to_bytes(_PIECE_BYTES, "big") + found)
            put_us, _ = parted(known)
            if now_us - put_us >= window_us:
                return 0, key
        return parted(known)[1], key

    def remember_equal(self, key: bytes, job_id: int, now_us: int) -> None:
        """Remember a put by the key that `find_equal` returned."""
        self.remember(key, joined(now_us, job_id), now_us)
