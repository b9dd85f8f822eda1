"""The client's reader of statistics and lists."""

import pytest

from beanpole.client.sansio.shapes import parse_list, parse_stats


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"12", 12),
        (b"-1", -1),
        (b'"1.13"', "1.13"),
        (b"ready", "ready"),
        ("\u0663".encode(), "\u0663"),  # a digit, and no number of the protocol
        ('"r\u00f6\u0085a: \u2028b"'.encode(), "r\u00f6\u0085a: \u2028b"),
        (b'"r\xf6"', "r\ufffd"),
    ],
)
def test_a_value_in_any_encoding_is_one_value(value: bytes, found: int | str) -> None:
    assert parse_stats(b"---\na: %b\nb: 2\n" % value) == {"a": found, "b": 2}


def test_a_name_in_any_encoding_is_one_name() -> None:
    assert parse_list(b"---\n") == []
    assert parse_list("---\n- a\n- r\u00f6\u2028b\n".encode()) == ["a", "r\u00f6\u2028b"]
