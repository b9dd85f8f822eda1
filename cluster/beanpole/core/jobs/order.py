"""An ordered set in small sorted lists: no single operation takes long.

A binary heap finds the first key as fast, but a key removed from the middle stays there until it
comes to the front or the heap is rebuilt: 77 ms for 500,000 jobs, in one step of every node. Here a
key is removed at once, wherever it is. The keys are opaque.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any, Final

# Keys of one list. Adding and removing move at most this many pointers, 2 KB. A million keys are
# 4,000 lists; the list of these lists is moved once for each of them that is emptied at the front.
PART_MAX: Final = 256
# Each tube has two orders, and most are never filled: they share this list, which is never changed.
_NOTHING: Final[list[Any]] = []


class Order:
    """An ordered set. Adding at the end and removing from the front, as is usual, is cheapest."""

    __slots__ = ("_lasts", "_parts")

    def __init__(self) -> None:
        self._parts: list[list[Any]] = _NOTHING
        self._lasts: list[Any] = _NOTHING  # the last key of each part

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __contains__(self, key: Any) -> bool:
        parts = self._parts
        place = bisect_left(self._lasts, key)
        if place == len(parts):
            return False
        part = parts[place]
        return bool(part[bisect_left(part, key)] == key)

    def count_below(self, key: Any) -> int:
        """Return the number of keys below a key, which need not be in the set."""
        place = bisect_left(self._lasts, key)
        before = sum([len(part) for part in self._parts[:place]])
        return before + bisect_left(self._parts[place], key) if place < len(self._parts) else before

    def __iter__(self) -> Iterator[Any]:
        for part in self._parts:
            yield from part

    def copied(self) -> list[list[Any]]:
        """Return the keys in order, in copies of the lists."""
        return [part[:] for part in self._parts]

    def part(self, start: int, count: int) -> list[Any]:
        """Return up to `count` keys from a position on. Earlier lists are skipped by length."""
        found: list[Any] = []
        if count <= 0:
            return found
        for one in self._parts:
            if start >= len(one):
                start -= len(one)
                continue
            found += one[start : start + count - len(found)]
            start = 0
            if len(found) == count:
                break
        return found

    def part_from_end(self, start: int, count: int) -> list[Any]:
        """Return up to `count` keys backwards, from a position counted from the end."""
        found: list[Any] = []
        if count <= 0:
            return found
        for place in range(len(self._parts) - 1, -1, -1):  # mypyc cannot compile `reversed` here
            one = self._parts[place]
            end = len(one) - start
            if end <= 0:
                start -= len(one)
                continue
            some = one[max(0, end - count + len(found)) : end]
            some.reverse()
            found += some
            start = 0
            if len(found) == count:
                break
        return found

    def first(self) -> Any:
        """Return the first key; None if there is none."""
        parts = self._parts
        return parts[0][0] if parts else None

    def last(self) -> Any:
        """Return the last key; None if there is none."""
        lasts = self._lasts
        return lasts[-1] if lasts else None

    def first_from(self, key: Any) -> Any:
        """Return the first key at or above a key, which need not be in the set; None if none is."""
        place = bisect_left(self._lasts, key)
        if place == len(self._parts):
            return None
        part = self._parts[place]
        return part[bisect_left(part, key)]

    def last_below(self, key: Any) -> Any:
        """Return the last key below a key, which need not be in the set; None if none is."""
        place = bisect_left(self._lasts, key)
        if place < len(self._parts):
            part = self._parts[place]
            at = bisect_left(part, key)
            if at:
                return part[at - 1]
        return self._lasts[place - 1] if place else None

    def pop_first(self) -> None:
        """Remove the first key; there must be one."""
        part = self._parts[0]
        del part[0]
        if not part:
            del self._parts[0]
            del self._lasts[0]

    def add(self, key: Any) -> None:
        """Add a key that is not in the set."""
        parts = self._parts
        if parts is _NOTHING:
            self._parts, self._lasts = [[key]], [key]
            return
        lasts = self._lasts
        if not parts or key > lasts[-1]:
            if parts and len(parts[-1]) < PART_MAX:
                parts[-1].append(key)
                lasts[-1] = key
            else:
                parts.append([key])
                lasts.append(key)
            return
        place = bisect_left(lasts, key)
        part = parts[place]
        insort(part, key)
        if len(part) > PART_MAX:
            half = part[PART_MAX // 2 :]
            del part[PART_MAX // 2 :]
            parts.insert(place + 1, half)
            lasts.insert(place, part[-1])

    def remove(self, key: Any) -> None:
        """Remove a key that is in the set."""
        parts = self._parts
        place = bisect_left(self._lasts, key)
        part = parts[place]
        at = bisect_left(part, key)
        assert part[at] == key, f"{key} is not in order"
        del part[at]
        if not part:
            del parts[place]
            del self._lasts[place]
        elif at == len(part):
            self._lasts[place] = part[-1]
