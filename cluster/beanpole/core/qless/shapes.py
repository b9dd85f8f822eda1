"""Validation of the arguments of calls: the log is not trusted, but handlers trust their arguments.

This module holds the kinds of arguments and their checks. The shapes of the calls' arguments are in
`core.qless.calls`.
"""

from abc import ABC, abstractmethod
from math import copysign
from typing import Any, Final

from beanpole import qless as q
from beanpole.core.qless import limits

BAD: Final[q.Result] = (q.BAD_CALL, ())
_NUMBER_MAX: Final = float(q.NUMBER_MAX)


class Kind(ABC):
    """A kind of argument."""

    @abstractmethod
    def refusal(self, value: Any) -> q.Result | None:
        """Return the result of a call that is refused for this argument; None if it is valid."""


class Text(Kind):
    """Bytes of limited length; a longer value is refused with the name of the limit."""

    def __init__(self, longest: int, refused: q.Result) -> None:
        self._longest = longest
        self._refused = refused

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        if type(value) is not bytes:
            return BAD
        return self._refused if len(value) > self._longest else None


class Number(Kind):
    """A float of at most NUMBER_MAX in magnitude; no infinity, NaN or negative zero."""

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        return None if is_number(value) else BAD


class Positive(Number):
    """A number above 0."""

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        return None if is_number(value) and value > 0.0 else BAD


class Count(Kind):
    """An int between two bounds."""

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        return None if type(value) is int and self._least <= value <= self._most else BAD


class Truth(Kind):
    """True or False."""

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        return None if type(value) is bool else BAD


class Optional(Kind):
    """None, or a value of another kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        return None if value is None else self.kind.refusal(value)


class Many(Kind):
    """A tuple of ITEMS_MAX values of another kind at most."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        if type(value) is not tuple:
            return BAD
        if len(value) > q.ITEMS_MAX:
            return limits.ITEMS
        for one in value:
            refused = self.kind.refusal(one)
            if refused is not None:
                return refused
        return None


class Row(Kind):
    """A tuple with a kind for each item."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = kinds

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        if type(value) is not tuple or len(value) != len(self.kinds):
            return BAD
        for place in range(len(value)):
            refused = self.kinds[place].refusal(value[place])
            if refused is not None:
                return refused
        return None


class Choice(Kind):
    """A tuple of a key and a value of the key's kind."""

    def __init__(self, kinds: dict[bytes, Kind]) -> None:
        self.kinds = kinds

    def refusal(self, value: Any) -> q.Result | None:
        """See `Kind`."""
        if type(value) is not tuple or len(value) != 2 or type(value[0]) is not bytes:
            return BAD
        kind = self.kinds.get(value[0])
        return BAD if kind is None else kind.refusal(value[1])


def is_number(value: Any) -> bool:
    """Whether a value is a valid number in a call."""
    if type(value) is not float or not -_NUMBER_MAX <= value <= _NUMBER_MAX:
        return False
    return value != 0.0 or copysign(1.0, value) > 0.0


def plain(value: Any) -> Any:
    """Return an argument in canonical form: lists become tuples, -0.0 becomes 0.0."""
    if type(value) is float:
        return value + 0.0
    if type(value) is tuple or type(value) is list:
        return tuple([plain(one) for one in value])
    return value


NAME: Final = Text(q.NAME_MAX_BYTES, limits.NAME)
DATA: Final = Text(q.DATA_MAX_BYTES, limits.DATA)
NUMBER: Final = Number()
POSITIVE: Final = Positive()
TRUTH: Final = Truth()
INTEGER: Final = Count(-q.NUMBER_MAX, q.NUMBER_MAX)
NAMES: Final = Many(NAME)
