"""Parameters of tests of which `make test` takes some, and `make test-long` the others."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(share: int, values: Iterable[Any]) -> list[Any]:
    """Return the values, of which all but the first of each `share` have the mark `long`."""
    return [
        pytest.param(value, marks=pytest.mark.long) if number % share else value
        for number, value in enumerate(values)
    ]
