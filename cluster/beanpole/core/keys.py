"""Deduplication keys of puts: which were seen lately, and the job that each one made.

Bounded by count and by cluster time. Nothing here looks at jobs: a key outlives its job, because
a client that repeats a put cannot know that the job is done by now.
"""

from typing import Final

from crc32c import crc32c

from beanpole.constants import DEDUP_KEYS_MAX, DEDUP_WINDOW_US

# Keys of one generation: the younger one becomes the older one when it has them.
GENERATION_KEYS_MAX: Final = DEDUP_KEYS_MAX // 2
# A generation is spread over several dicts. Growing or freeing one dict of 500,000 keys would hold
# up the loop for 30 ms; one of these takes less than one, and is one slice of an image.
SHARDS: Final = 64


def shard_of(key: bytes) -> int:
    """In which shard a key belongs, the same on every node."""
    return crc32c(key) % SHARDS


class Generation:
    """Keys in the order in which they came, which is what makes a part of it a slice of an image.

    `began_us` is the cluster time of the first one.
    """

    __slots__ = ("began_us", "count", "shards")

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.count = 0
        self.shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def add(self, key: bytes, job_id: int) -> None:
        """Add a key that is not in it."""
        self.shards[shard_of(key)][key] = job_id
        self.count += 1


class Keys:
    """The keys that are remembered: two generations, so that forgetting needs no clean-up by key.

    A key is remembered for at least DEDUP_WINDOW_US or GENERATION_KEYS_MAX later keys, whichever
    ends first, and at most until there are DEDUP_KEYS_MAX.
    """

    __slots__ = ("_forgotten", "older", "younger")

    def __init__(self) -> None:
        self.older = Generation(0)
        self.younger = Generation(0)
        self._forgotten: list[dict[bytes, int]] = []  # shards that are still to be freed

    def find(self, key: bytes) -> int:
        """The id of the job that was put with this key; 0 if the key is not remembered."""
        place = shard_of(key)
        return self.younger.shards[place].get(key) or self.older.shards[place].get(key, 0)

    def remember(self, key: bytes, job_id: int, now_us: int) -> None:
        """Remember a key that was not found."""
        younger = self.younger
        if younger.count >= GENERATION_KEYS_MAX or now_us - younger.began_us >= DEDUP_WINDOW_US:
            # One shard is freed with each key from now on, never a generation at once.
            self._forgotten += filter(None, self.older.shards)
            self.older = younger
            younger = self.younger = Generation(now_us)
        if self._forgotten:
            self._forgotten.pop()
        younger.add(key, job_id)
