"""Deduplication keys of puts: the keys seen recently, and the job that each put created.

The table is bounded by count and by cluster time. It is independent of the jobs: a key outlives its
job, because a client that repeats a put cannot know that the job is already done.
"""

from typing import Final

from crc32c import crc32c

from beanpole.constants import DEDUP_KEYS_MAX, DEDUP_WINDOW_US

# Keys of one generation: the younger generation becomes the older one when it has this many.
GENERATION_KEYS_MAX: Final = DEDUP_KEYS_MAX // 2
# A generation is sharded over several dicts. Growing or freeing one dict of 500,000 keys would
# block the event loop for 30 ms; a shard takes less than 1 ms, and is one slice of an image.
SHARDS: Final = 64

# A part of a shard: 0 for the older generation or 1, the number of the shard, the shard, the
# position of the first key, and the position after the last.
Slice = tuple[int, int, dict[bytes, int], int, int]


def shard_of(key: bytes) -> int:
    """Return the shard of a key, the same on every node."""
    return crc32c(key) % SHARDS


class Generation:
    """Keys in the order of their arrival, so that a part of a generation is a slice of an image.

    `began_us` is the cluster time of the first key.
    """

    __slots__ = ("began_us", "count", "shards")

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.count = 0
        self.shards: list[dict[bytes, int]] = [{} for _ in range(SHARDS)]

    def add(self, key: bytes, job_id: int) -> None:
        """Add a key that is not in the generation."""
        self.shards[shard_of(key)][key] = job_id
        self.count += 1


class Keys:
    """The remembered keys, in two generations, so that keys need not expire one by one.

    A key is remembered for at least DEDUP_WINDOW_US or GENERATION_KEYS_MAX later keys, whichever
    ends first, and at most until there are DEDUP_KEYS_MAX.
    """

    __slots__ = ("_forgotten", "older", "younger")

    def __init__(self) -> None:
        self.older = Generation(0)
        self.younger = Generation(0)
        self._forgotten: list[dict[bytes, int]] = []  # shards that are still to be freed

    @property
    def count(self) -> int:
        """The number of remembered keys."""
        return self.older.count + self.younger.count

    def slices(self, keys_max: int) -> list[Slice]:
        """Return all keys as slices of at most `keys_max`, in the order of an image.

        Shards only grow, so the slices stay as they are now while keys are added.
        """
        return [
            (age, place, shard, start, min(start + keys_max, len(shard)))
            for age, generation in enumerate((self.older, self.younger))
            for place, shard in enumerate(generation.shards)
            for start in range(0, len(shard), keys_max)
        ]

    def find(self, key: bytes) -> int:
        """Return the id of the job that was put with this key; 0 if the key is not remembered."""
        place = shard_of(key)
        return self.younger.shards[place].get(key) or self.older.shards[place].get(key, 0)

    def remember(self, key: bytes, job_id: int, now_us: int) -> None:
        """Remember a key that `find` does not know."""
        younger = self.younger
        if younger.count >= GENERATION_KEYS_MAX or now_us - younger.began_us >= DEDUP_WINDOW_US:
            # Each further key frees one shard, so that a generation is never freed at once.
            self._forgotten += filter(None, self.older.shards)
            self.older = younger
            younger = self.younger = Generation(now_us)
        if self._forgotten:
            self._forgotten.pop()
        younger.add(key, job_id)
