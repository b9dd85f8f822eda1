"""Whole numbers that people write, and the places that parse them."""

import argparse
from collections.abc import Callable

import pytest

from beanpole.errors import ConfigurationError
from beanpole.numbers import TOO_LARGE, whole_number
from beanpoled.cli import events, import_qless, policy, values

# Digits of other scripts, and of none: Python takes the first two for numbers.
FOREIGN = ("\u0663", "\uff11\uff12", "1\u0663", "\u00b2")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("000", 0),
        ("7", 7),
        ("0" * 5000 + "12", 12),
        (str(2**64 - 1), 2**64 - 1),
        ("9" * 20, TOO_LARGE - 1),
        ("1" + "0" * 20, TOO_LARGE),
        ("9" * 5000, TOO_LARGE),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize("text", ["", " 1", "1 ", "+1", "-1", "1.0", "1_0", "0x1", *FOREIGN])
def test_what_is_no_whole_number(text: str) -> None:
    assert whole_number(text) is None


@pytest.mark.parametrize(
    ("parse", "form", "words"),
    [
        (values.whole, "%s", "is not a whole number from 0 to "),
        (values.positive, "%s", "is not a whole number from 1 to "),
        (values.duration_s, "%s", "is no time"),
        (values.duration_s, "%sh", "is no time"),
        (values.size_bytes, "%s", "is no size"),
        (values.size_bytes, "%sKiB", "is no size"),
        (policy.rate, "%s/s", "is no rate"),
        (policy.rate, "1/%ss", "is no (rate|time)"),
        (policy.rate, "1/%sms", "is no (rate|time)"),
        (events._start, "%s", "it must be earliest or an offset from 0"),
        (import_qless._place, "redis://a/%s", "is no number"),
    ],
)
@pytest.mark.parametrize("digits", FOREIGN)
def test_digits_of_other_scripts_are_refused(
    parse: Callable[[str], object], form: str, words: str, digits: str
) -> None:
    with pytest.raises((argparse.ArgumentTypeError, ConfigurationError), match=words):
        parse(form % digits)
