"""Parametrised tests of which `make test` runs a share, and `make test-long` the rest."""

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(share: int, values: Iterable[Any]) -> list[Any]:
    """Return the values; all but the first of each `share` values have the mark `long`."""
    return [
        pytest.param(value, marks=pytest.mark.long) if number % share else value
        for number, value in enumerate(values)
    ]
