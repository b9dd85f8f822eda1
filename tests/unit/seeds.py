"""Seeds of random tests: a few for every edit, the rest for `make check`.

Which values a test has belongs there, not here.
"""

from collections.abc import Iterable
from typing import Any

import pytest


def seeds(numbers: Iterable[int], quick: int = 2) -> list[Any]:
    """Return the values of a parameter, of which all but the first ones are marked `slow`.

    Args:
        numbers: all seeds.
        quick: how many of them `make unit` runs.
    """
    found = list(numbers)
    assert 0 < quick < len(found), "a mark that no seed has, or that all have, says nothing"
    rest = [pytest.param(number, marks=pytest.mark.slow) for number in found[quick:]]
    return [*found[:quick], *rest]
