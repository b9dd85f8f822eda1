"""Longest-prefix match: finds the longest of many prefixes of a name by binary search.

This module holds the table only. The patterns of policies are in `core.jobs.policies`, those of the
rights of users in `core.users`; both have patterns that are not prefixes, and look at those
themselves.

In the order of their bytes, all names with one prefix are neighbours: a prefix is a range of that
order. Two ranges are disjoint, or one contains the other. So `boundaries` divide the order into
ranges in which every name has the same prefixes, at most two boundaries for each prefix. A lookup
takes 9 comparisons for 256 prefixes, whatever their lengths.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

# At the end of a pattern: it matches all names that begin with the bytes before it.
ANY: Final = b"*"
# In place of the number of a prefix.
NONE: Final = -1


class PrefixRanges(NamedTuple):
    """The ranges between boundaries, for prefixes that are numbered in their order.

    Attributes:
        boundaries: in order. The range of a name is `bisect_right(boundaries, name)`.
        longest_prefix: for each range, the longest prefix of its names; NONE if there is none.
        parent: for each prefix, the longest other one that it begins with; NONE if there is none.
            It is a lower number.
    """

    boundaries: list[bytes]
    longest_prefix: list[int]
    parent: list[int]


def ranges_of(prefixes: Sequence[bytes]) -> PrefixRanges:
    """Return the ranges of prefixes, which are in order, distinct and not empty."""
    boundaries: list[bytes] = []
    longest_prefix = [NONE]
    parent: list[int] = []
    inside: list[int] = []  # the prefixes whose ranges have not ended, the longest last
    for number, prefix in enumerate(prefixes):
        while inside and not prefix.startswith(prefixes[inside[-1]]):
            _end(prefixes[inside.pop()], inside, boundaries, longest_prefix)
        parent.append(inside[-1] if inside else NONE)
        inside.append(number)
        if boundaries and boundaries[-1] == prefix:
            longest_prefix[-1] = number
        else:
            boundaries.append(prefix)
            longest_prefix.append(number)
    while inside:
        _end(prefixes[inside.pop()], inside, boundaries, longest_prefix)
    return PrefixRanges(boundaries, longest_prefix, parent)


def _end(
    prefix: bytes, inside: list[int], boundaries: list[bytes], longest_prefix: list[int]
) -> None:
    """Add the boundary after the names with a prefix; the range around it goes on there."""
    # The first name after them has a last byte that is greater by 1, which 255 cannot be. After
    # names that begin with nothing but 255 there is no other.
    rest = prefix.rstrip(b"\xff")
    if not rest:
        return
    boundary = rest[:-1] + bytes([rest[-1] + 1])
    number = inside[-1] if inside else NONE
    if boundaries[-1] == boundary:  # a range inside ended here, too
        longest_prefix[-1] = number
    else:
        boundaries.append(boundary)
        longest_prefix.append(number)
