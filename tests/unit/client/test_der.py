"""DER that ends too early is refused: a list cut short would revoke fewer certificates."""

import pytest

from beanpole.client.der import fields

# Two values, of which the second has a size of two bytes.
TWO = b"\x02\x01\x07" + b"\x04\x81\x80" + b"x" * 128


def test_values_are_split() -> None:
    assert fields(TWO) == [(2, b"\x07"), (4, b"x" * 128)]


@pytest.mark.parametrize("size", [1, 2, 4, 5, 6, len(TWO) - 1])
def test_what_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        fields(TWO[:size])
