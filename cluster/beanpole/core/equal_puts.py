"""Puts of equal bodies into queues whose policy makes puts unique in a window of time.

Belongs here: how such a put is known, and for how long. They are remembered in generations as the
keys of clients are (`core.keys`), but apart from those, so that no client's key can be one of them.
"""

from hashlib import blake2b
from typing import Final

from beanpole.constants import JOB_ID_MAX
from beanpole.core.keys import Keys

# A put is known by a hash of this many bytes: the chance of two equal ones among a million
# different bodies is below 10**-40. In its key a number of the time stands before it.
_HASH_BYTES: Final = 24
_PIECE_BYTES: Final = 8
EQUAL_KEY_BYTES: Final = _PIECE_BYTES + _HASH_BYTES
# What is remembered of a put is one number: when it was, and in the low bits its job.
_ID_BITS: Final = JOB_ID_MAX.bit_length()


def joined(put_us: int, job_id: int) -> int:
    """What is remembered of a put: one number, of its time and its job."""
    return put_us << _ID_BITS | job_id


def parted(value: int) -> tuple[int, int]:
    """The time and the job of a put that `joined` made one number."""
    return value >> _ID_BITS, value & JOB_ID_MAX


class EqualPuts(Keys):
    """The puts that are remembered."""

    __slots__ = ()

    def find_equal(
        self, queue: bytes, body: bytes, window_us: int, now_us: int
    ) -> tuple[int, bytes]:
        """Look for a put of the same body into a queue in the time of a window before now.

        Time is cut into pieces as long as the window, and a key is of a body and a piece. So no
        key is ever put twice: an equal put in the same piece of time is always in the window.

        Returns:
            (the id of its job, or 0, the key by which this put is to be remembered)
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
        """Remember a put by the key that `find_equal` gave."""
        self.remember(key, joined(now_us, job_id), now_us)
