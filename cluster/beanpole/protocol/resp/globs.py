"""The glob patterns of Redis: `*`, `?`, `[a-z]`, `[^a-z]`, and backslashes to escape these.

Clients choose both patterns and texts, and a node that matches them does nothing else meanwhile.
So there are no regular expressions here: a set of five bytes became one of a kilobyte, which took
long to compile. A match tries all places of a text at once: integers have a bit for each place.
It takes a few operations on integers for each byte of the pattern and never goes back, so its
time is at most proportional to the product of the two lengths, with a tiny factor.
"""

from typing import Final

# Longer patterns are refused: with a channel name of four kilobytes a match takes 0.1 ms.
PATTERN_MAX_BYTES: Final = 256

# One byte of a text: which bytes fit, as bounds. Those below the first bound do not, those from
# there to the second do, and so on.
_Element = tuple[int, ...]

_STAR: Final[_Element] = (-1,)
_ANY: Final[_Element] = (0, 256)
_ALL_BYTES: Final = (1 << 256) - 1
# Of each bit of a byte: a table of translation to the digits of that bit.
_DIGITS: Final = [bytes([48 + (byte >> bit & 1) for byte in range(256)]) for bit in range(8)]


class Text:
    """A text that is matched with patterns; what one match has found out serves the next ones.

    Attributes:
        data: the bytes of the text.
        places: a bit for each byte, the first one lowest.
    """

    __slots__ = ("_below", "_planes", "data", "places")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.places = (1 << len(data)) - 1
        self._planes: list[int] = []
        self._below: dict[int, int] = {0: 0, 256: self.places}

    def fitting(self, element: tuple[int, ...]) -> int:
        """Return the places whose bytes fit an element."""
        found = 0
        for bound in element:
            below = self._below.get(bound, -1)
            found ^= self._find_below(bound) if below < 0 else below
        return found

    def _find_below(self, bound: int) -> int:
        """Return the places of the bytes below a bound, which is below 256."""
        if not self._planes:
            backwards = self.data[::-1]  # the last digit of a number is its lowest
            self._planes = [int(b"0" + backwards.translate(table), 2) for table in _DIGITS]
        # From the lowest bit to the highest: are the bits of the byte so far below the bound's?
        below = 0
        for bit, plane in enumerate(self._planes):
            zeros = self.places ^ plane
            below = zeros | below if bound >> bit & 1 else zeros & below
        self._below[bound] = below
        return below


class Pattern:
    """A pattern, prepared to be matched with many texts."""

    __slots__ = ("_has_star", "_least", "_middle", "_prefix", "_suffix")

    def __init__(self, pattern: bytes) -> None:
        elements = _elements(pattern)
        self._has_star = _STAR in elements
        self._least = len(elements) - elements.count(_STAR)
        # Most patterns have no more than these two and a star, and most texts fail one of them.
        self._prefix = _literal(elements)
        self._suffix = b""
        if self._has_star:
            self._suffix = _literal(elements[::-1])[::-1]
        self._middle = elements[len(self._prefix) : len(elements) - len(self._suffix)]

    def fits(self, text: Text) -> bool:
        """Return whether the pattern matches all of a text."""
        data = text.data
        if len(data) < self._least or (len(data) > self._least and not self._has_star):
            return False
        if not (data.startswith(self._prefix) and data.endswith(self._suffix)):
            return False
        # A bit for each place up to which the elements so far match the text.
        reached = 1 << len(self._prefix)
        for element in self._middle:
            if element == _STAR:
                # All places from the first one on, the end of the text included.
                first = reached & -reached
                reached = (text.places << 1 | 1) ^ (first - 1)
            else:
                reached = (reached & text.fitting(element)) << 1
                if not reached:
                    return False
        return bool(reached >> (len(data) - len(self._suffix)) & 1)


def _literal(elements: list[_Element]) -> bytes:
    """Return the bytes of the first elements that fit one byte only."""
    found = bytearray()
    for element in elements:
        if len(element) != 2 or element[1] - element[0] != 1:
            break
        found.append(element[0])
    return bytes(found)


def _elements(pattern: bytes) -> list[_Element]:
    """Return the elements of a pattern; stars in a row are one."""
    elements: list[_Element] = []
    place = 0
    while place < len(pattern):
        byte = pattern[place]
        place += 1
        if byte == 0x2A:  # *
            if not elements or elements[-1] != _STAR:
                elements.append(_STAR)
        elif byte == 0x3F:  # ?
            elements.append(_ANY)
        elif byte == 0x5B:  # [
            fitting, place = _set(pattern, place)
            elements.append(_bounds(fitting))
        else:
            if byte == 0x5C and place < len(pattern):  # \
                byte = pattern[place]
                place += 1
            elements.append((byte, byte + 1))
    return elements


def _set(pattern: bytes, place: int) -> tuple[int, int]:
    """Return a set, with a bit for each byte, and the place after it; `]` may be missing."""
    negated = pattern[place : place + 1] == b"^"
    place += negated
    found = 0
    while place < len(pattern) and pattern[place] != 0x5D:  # ]
        if pattern[place] == 0x5C and place + 1 < len(pattern):  # \
            found |= 1 << pattern[place + 1]
            place += 2
        elif place + 2 < len(pattern) and pattern[place + 1] == 0x2D:  # -
            first, last = sorted((pattern[place], pattern[place + 2]))
            found |= (2 << last) - (1 << first)
            place += 3
        else:
            found |= 1 << pattern[place]
            place += 1
    return (_ALL_BYTES ^ found if negated else found), place + 1


def _bounds(fitting: int) -> _Element:
    """Return the element of a set, which has a bit for each byte."""
    edges = fitting ^ (fitting << 1)
    bounds = []
    while edges:
        lowest = edges & -edges
        bounds.append(lowest.bit_length() - 1)
        edges ^= lowest
    return tuple(bounds)
