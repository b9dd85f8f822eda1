"""Stretches of names: finds the longest of many beginnings that a name has, by bisection.

This module holds the table only. The patterns of policies are in `core.jobs.policies`, those of the
rights of users in `core.users`; both have patterns that are no beginning, and look at those
themselves.

In the order of their bytes, all names with one beginning are neighbours: a beginning is a stretch
of that order. Two stretches are apart, or one lies in the other. So `borders` divide the order into
stretches in which every name has the same beginnings, at most two borders for each beginning. A
lookup takes 9 comparisons for 256 beginnings, whatever their lengths.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

# In place of the number of a beginning.
NONE: Final = -1


class Stretches(NamedTuple):
    """The stretches between borders, for beginnings that are numbered in their order.

    Attributes:
        borders: in order. The stretch of a name is `bisect_right(borders, name)`.
        longest: for each stretch, the longest beginning of its names; NONE if there is none.
        around: for each beginning, the longest other one that it begins with; NONE if there is
            none. It is a lower number.
    """

    borders: list[bytes]
    longest: list[int]
    around: list[int]


def stretches_of(beginnings: Sequence[bytes]) -> Stretches:
    """Return the stretches of beginnings, which are in order, distinct and not empty."""
    borders: list[bytes] = []
    longest = [NONE]
    around: list[int] = []
    inside: list[int] = []  # the beginnings whose stretches have not ended, the longest last
    for number, beginning in enumerate(beginnings):
        while inside and not beginning.startswith(beginnings[inside[-1]]):
            _end(beginnings[inside.pop()], inside, borders, longest)
        around.append(inside[-1] if inside else NONE)
        inside.append(number)
        if borders and borders[-1] == beginning:
            longest[-1] = number
        else:
            borders.append(beginning)
            longest.append(number)
    while inside:
        _end(beginnings[inside.pop()], inside, borders, longest)
    return Stretches(borders, longest, around)


def _end(beginning: bytes, inside: list[int], borders: list[bytes], longest: list[int]) -> None:
    """Add the border after the names with a beginning; the stretch around it goes on there."""
    # The first name after them has a last byte that is greater by 1, which 255 cannot be. After
    # names that begin with nothing but 255 there is no other.
    rest = beginning.rstrip(b"\xff")
    if not rest:
        return
    border = rest[:-1] + bytes([rest[-1] + 1])
    number = inside[-1] if inside else NONE
    if borders[-1] == border:  # a stretch inside ended here, too
        longest[-1] = number
    else:
        borders.append(border)
        longest.append(number)
