"""Numbers and JSON as the scripts read and write them; all expectations are from Redis 7."""

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beanpole.protocol.qless import cjson
from beanpole.protocol.qless.numbers import format_number, to_number, truncate
from beanpole.qless import NUMBER_MAX


def normalised(text: bytes) -> "bytes | cjson.Bad":
    """Read a text and encode it again, as `requests` does with the data of a job."""
    value = cjson.decode(text)
    return value if isinstance(value, cjson.Bad) else cjson.encode(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"0", 0.0),
        (b" 12 ", 12.0),
        (b"\v7\f", 7.0),
        (b"1e5", 1e5),
        (b"+5", 5.0),
        (b".5", 0.5),
        (b"5.", 5.0),
        (b"08", 8.0),
        (b"-3.25", -3.25),
        (b"0x10", 16.0),
        (b"-0x1F", -31.0),
        (b"0x1.8p3", 12.0),
        (b"0x.8", 0.5),
        (b"12\0rest", 12.0),
        (b"1700000000.123456", 1700000000.123456),
        (b"%d" % NUMBER_MAX, float(NUMBER_MAX)),
    ],
)
def test_numbers(text: bytes, value: float) -> None:
    assert to_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *(b"", b" ", b".", b"x", b"1x", b"1e", b"1e+", b"0x", b"0x1p", b"--1", b"+ 5", b"1_0"),
        *(b"1,5", b"nan", b"-nan", b"inf", b"Infinity", b"1e999", b"-1e999", b"0x1p99999"),
        *(b"9007199254740993.5", b"-9007199254740994", b"1" * 1000, b"\0", b"one"),
    ],
)
def test_no_numbers(text: bytes) -> None:
    assert to_number(text) is None


def test_zero_has_one_form() -> None:
    for text in (b"-0", b"-0.0", b"-0x0", b"-1e-999"):
        value = to_number(text)
        assert value == 0.0
        assert math.copysign(1.0, value) == 1.0


@given(st.floats(-NUMBER_MAX, NUMBER_MAX))
def test_numbers_are_read_as_python_writes_them(value: float) -> None:
    assert to_number(repr(value).encode()) == value


def test_numbers_are_written_with_14_digits() -> None:
    assert format_number(163.0) == b"163"
    assert format_number(163.7) == b"163.7"
    assert format_number(1.0 / 3.0) == b"0.33333333333333"
    assert format_number(12345678901234567.0) == b"1.2345678901235e+16"
    assert truncate(163.7) == 163
    assert truncate(-1.5) == -1


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (b"[]", b"{}"),
        (b"[[]]", b"[{}]"),
        (b'{"a":[]}', b'{"a":{}}'),
        (b"[1,null]", b"[1,null]"),
        (b"[1]", b"[1]"),
        (b"[1,-2.5,12345678901234567]", b"[1,-2.5,1.2345678901235e+16]"),
        (b'[1,"%d",2,[],[3,4],true]', b'[1,"%d",2,{},[3,4],true]'),
        (b'"/\\u007f\\u0001"', b'"\\/\\u007f\\u0001"'),
        (b'  "x"\t\r\n', b'"x"'),
        (b'"\\ud800\\udc00"', b'"\xf0\x90\x80\x80"'),
        (b'"\\"\\\\\\b\\f\\n\\r\\t"', b'"\\"\\\\\\b\\f\\n\\r\\t"'),
        (b'"\x01\xff"', b'"\\u0001\xff"'),
        (b"-0", b"-0"),
        (b"1.5e3", b"1500"),
        (b"12345678901234567", b"1.2345678901235e+16"),
        (b"0x10", b"16"),
        (b"+1", b"1"),
        (b"01", b"1"),
        (b'{"a":1,"a":2}', b'{"a":2}'),
        (b"true", b"true"),
        (b"false", b"false"),
        (b"12\0 what follows is not seen", b"12"),
    ],
)
def test_what_is_read_and_written_again(text: bytes, written: bytes) -> None:
    assert normalised(text) == written


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"notjson", b"Expected value but found invalid token at character 1"),
        (b"", b"Expected value but found T_END at character 1"),
        (b"{", b"Expected object key string but found T_END at character 2"),
        (b"[1,", b"Expected value but found T_END at character 4"),
        (b"[1 2]", b"Expected comma or array end but found T_NUMBER at character 4"),
        (b'{"a" 1}', b"Expected colon but found T_NUMBER at character 6"),
        (b"{a:1}", b"Expected object key string but found invalid token at character 2"),
        (b'{"a":1 "b"}', b"Expected comma or object end but found T_STRING at character 8"),
        (b"1 2", b"Expected the end but found T_NUMBER at character 3"),
        (b'"abc', b"Expected value but found unexpected end of string at character 5"),
        (b'"\\x"', b"Expected value but found invalid escape code at character 2"),
        (b'"\\ud800"', b"Expected value but found invalid unicode escape code at character 2"),
        (b'"\\udc00"', b"Expected value but found invalid unicode escape code at character 2"),
        (b"-", b"Expected value but found invalid number at character 1"),
        (b"[,]", b"Expected value but found T_COMMA at character 2"),
        (b"[1,]", b"Expected value but found T_ARR_END at character 4"),
        (b'{"a":1,}', b"Expected object key string but found T_OBJ_END at character 8"),
        (b".5", b"Expected value but found invalid token at character 1"),
        (b"\0a", b"JSON parser does not support UTF-16 or UTF-32"),
        (b"nan", b"Cannot serialise number: must not be NaN or Inf"),
        (b"[-Infinity]", b"Cannot serialise number: must not be NaN or Inf"),
        (b'{"a":1e999}', b"Cannot serialise number: must not be NaN or Inf"),
    ],
)
def test_what_is_wrong_with_a_text(text: bytes, fault: bytes) -> None:
    value = cjson.decode(text)
    assert isinstance(value, cjson.Bad)
    assert value.text == fault


def test_depth_is_limited_however_the_text_is_read() -> None:
    deep = b"[" * cjson.DEPTH_MAX + b"]" * cjson.DEPTH_MAX
    assert not isinstance(cjson.decode(deep), cjson.Bad)
    for count in (cjson.DEPTH_MAX, 100_000):
        for before in (b"[", b'["\x01",'):  # the slower reader reads the second
            text = before + b"[" * count + b"]" * count + b"]"
            value = cjson.decode(text)
            assert isinstance(value, cjson.Bad)
            assert value.text.startswith(b"Found too many nested data structures (129)")


def test_long_texts_are_read_once() -> None:
    """They may contain invalid UTF-8; most other leniencies apply to short texts only."""
    long = b'"%b"' % (b"x" * 50_000)
    kept = b'["\\ud83d\\ude00\xff\x01",%b]' % long
    value = cjson.decode(kept)
    assert not isinstance(value, cjson.Bad)
    assert cjson.encode(value) == b'["\xf0\x9f\x98\x80\xff\\u0001",%b]' % long
    assert normalised(b'["\\\\ud83d",%b]' % long) == b'["\\\\ud83d",%b]' % long
    for before, text in (
        (b"[0x1,", b"Expected value but found invalid token at character 3"),
        (b'["\\ud83d",', b"Expected value but found invalid token at character 3"),
        (b"[1e999,", b"Cannot serialise number: must not be NaN or Inf"),
        (b"[NaN,", b"Cannot serialise number: must not be NaN or Inf"),
        (b"[\0", b"Expected value but found invalid token at character 2"),
    ):
        value = cjson.decode(before + long + b"]")
        assert isinstance(value, cjson.Bad)
        assert value.text == text


@pytest.mark.parametrize(
    "before",
    [
        b"x" * 5000,
        b"\\n\\\\" * 2000,
        b"\\ud83d\\ude00" * 500,
        b"\\\\ud83d\\u0041" * 500,
        "\u00e9\u20ac\U0001f600".encode() * 600,
        b"\xff" * 5000,
    ],
    ids=["plain", "escapes", "pairs", "no surrogates", "characters", "no characters"],
)
@pytest.mark.parametrize("rest", [b'\\ud83d"', b'\\udc00"', b"\0", b'",x'])
def test_an_error_of_a_long_text_has_the_position_in_bytes(before: bytes, rest: bytes) -> None:
    """The slower reader, which is for short texts, has the same position."""
    text = b'["' + before + rest + b"]"
    assert len(text) > cjson._AGAIN_MAX_BYTES
    for found in (cjson.decode(text), cjson._Reader(text).read()):
        assert isinstance(found, cjson.Bad)
        position = len(b'["' + before) + (1 if rest[:1] != b'"' else 3)
        assert found.text.endswith(b" at character %d" % position)


@pytest.mark.parametrize(
    ("text", "is_finite"),
    [
        (b"1e309", False),
        (b"-1E+309", False),
        (b"1" * 310, False),
        (b"-" + b"9" * 400 + b".5", False),
        (b"1" * 200 + b".5e150", False),
        (b"1" * 99 + b"e300", False),
        (b"1" * 300, True),
        (b"1e308", True),
        (b"1e-999", True),
        (b"0.%be99" % (b"9" * 99), True),
        (b'"1e999,%b"' % (b"9" * 400), True),
        (b'["\\"1e999",1,{"e+999":"[1e999]"}]', True),
        (b'"\\\\",1e999,"\\\\"', False),
    ],
)
def test_numbers_of_long_texts_are_finite(text: bytes, is_finite: bool) -> None:
    value = cjson.decode(b'["%b",%b]' % (b"x" * 50_000, text))
    if is_finite:
        assert not isinstance(value, cjson.Bad)
    else:
        assert isinstance(value, cjson.Bad)
        assert value.text == b"Cannot serialise number: must not be NaN or Inf"


def test_brackets_in_strings_are_no_depth() -> None:
    most = cjson.DEPTH_MAX
    strings = b'"' + b"[" * 500 + b'","\\"' + b"{" * 500 + b'","\\\\",'
    for depth in (most - 1, most):
        text = b"[" + strings + b'{"":' * depth + b"1" + b"}" * depth + b"]"
        assert isinstance(cjson.decode(text), cjson.Bad) == (depth == most)


@pytest.mark.parametrize("item", [b"1", b"1.5", b"1e100", b"[]", b'[[""]]', b'{"a":{}}', b'"["'])
def test_the_values_of_a_text_are_not_looked_at_one_by_one(item: bytes) -> None:
    """Calls for each number and each array took a node 0.1 to 0.2 s more for a mebibyte."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    text = b"[" + b",".join([item] * 10_000) + b"]"
    sys.setprofile(count)
    try:
        value = cjson.decode(text)
    finally:
        sys.setprofile(None)
    assert not isinstance(value, cjson.Bad)
    assert len(value) == 10_000
    assert calls < 1000, "some are of the collector of garbage"


TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**13), 10**13) | TEXTS,
    lambda inner: st.lists(inner, min_size=1) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@given(VALUES)
def test_round_trips(value: Any) -> None:
    """Both readers read the output of Python, and Python reads theirs."""
    text = json.dumps(value).encode()
    decoded = cjson.decode(text)
    assert decoded == value
    assert json.loads(cjson.encode(decoded)) == value
    assert cjson._Reader(text).read() == value
    assert cjson._Reader(json.dumps(value, ensure_ascii=False).encode()).read() == value


@given(st.binary(max_size=30) | st.text('{}[]:,"\\ au01-+.eEnxtf', max_size=30).map(str.encode))
def test_both_readers_agree(text: bytes) -> None:
    fast, slow = cjson.decode(text), cjson._Reader(text).read()
    if isinstance(slow, cjson.Bad):
        assert isinstance(fast, cjson.Bad)
    else:
        assert fast == slow
        assert normalised(cjson.encode(fast)) == cjson.encode(fast)


def test_each_character_is_escaped_once_whatever_is_beside_it() -> None:
    special = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
    special |= {character: "\\" + character for character in '"\\/'}
    for control in map(chr, (*range(0x20), 0x7F)):
        special.setdefault(control, f"\\u{ord(control):04x}")
    text = "".join(map(chr, range(0x100))) * 2
    expected = "".join(special.get(character, character) for character in text)
    assert cjson.encode(text) == f'"{expected}"'.encode()
    assert cjson.encode('\\"') == b'"\\\\\\""'
