"""A JSON codec compatible with Lua's cjson, including its leniency, its errors and its quirks.

cjson accepts text that JSON forbids (hexadecimal numbers, control characters, bytes that are not
UTF-8), and clients see its own error texts. It never writes an empty array, because an empty table
of Lua is not known to be one: `[]` becomes `{}`. Unlike cjson, this module refuses infinity and NaN
when reading, because they cannot be written again.

Strings are `str`; bytes that are not UTF-8 become surrogates. Numbers are floats.
"""

import json
import math
import re
from itertools import accumulate
from typing import Any, Final

Json = Any  # None, bool, float, str, list[Json] or dict[str, Json]; to encode, see there

# The maximum depth of data; that of cjson is 1000. Every later reader needs stack for the depth.
DEPTH_MAX: Final = 128

_NOT_FINITE: Final = b"Cannot serialise number: must not be NaN or Inf"
_TOO_DEEP: Final = b"Found too many nested data structures (%d)"
_UTF16: Final = b"JSON parser does not support UTF-16 or UTF-32"


class Encoded:
    """A text that `encode` has returned: it is written as it is. No `bytes`, for the compiler."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Bad:
    """The error for a text that is no JSON."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Bad({self.text!r})"


# --- reading -------------------------------------------------------------------------------------
# A text that Python's decoder refuses is read again by `_Reader`, because cjson may accept it, and
# has other error texts. This takes a node from the sources 10 ms for the given number of bytes.
# For longer texts, the error has only the position.
_AGAIN_MAX_BYTES: Final = 4 * 1024

# An unpaired surrogate is an error for cjson, but not for Python. Before the search, blanks of the
# same length replace all other escapes, so that a match has its position in the text.
_SHORT_ESCAPE: Final = re.compile(rb"\\[^u]")
_PAIR: Final = re.compile(rb"\\u[dD][89abAB]..\\u[dD][c-fC-F]")
_SHORT_BLANK: Final = b" " * 2
_PAIR_BLANK: Final = b" " * 10
_HALF: Final = re.compile(rb"\\u[dD][89a-fA-F]")


def _not_finite(text: str) -> float:
    raise ValueError(text)


# It makes no call of Python for a value: a mebibyte may have half a million of them.
_DECODER: Final = json.JSONDecoder(
    parse_float=float, parse_int=float, parse_constant=_not_finite, strict=False
)
# A string in a text that was decoded.
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Without one of these, where 0 is any digit, no number is infinite: it has less than 100 digits
# before the point, and an exponent below 100.
_LARGE: Final = (b"e000", b"e+000", b"0" * 100)
_DIGITS: Final = bytes.maketrans(b"123456789E", b"000000000e")
_LONG_NUMBER: Final = re.compile(rb"[-+.0-9eE]{5,}")  # 1e309 is infinite
# The depth changes at these bytes by 1 and by -1, as signed bytes.
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_STEPS: Final = bytes(set(range(256)) - set(b"[{]}"))


def decode(text: bytes) -> "Json | Bad":
    """Decode a JSON text."""
    half = _HALF.search(text)
    if half is not None:
        half = _HALF.search(_PAIR.sub(_PAIR_BLANK, _SHORT_ESCAPE.sub(_SHORT_BLANK, text)))
    at = text.find(b"\0") if half is None else half.start()
    fault = b""
    if at < 0:
        characters = text.decode(errors="surrogateescape")
        try:
            value = _DECODER.decode(characters)
        except json.JSONDecodeError as error:
            # cjson counts bytes.
            at = len(characters[: error.pos].encode(errors="surrogateescape"))
        except RecursionError:
            fault = _TOO_DEEP % (DEPTH_MAX + 1)
        except ValueError:
            fault = _NOT_FINITE
        else:
            if _is_too_deep(text):
                fault = _TOO_DEEP % (DEPTH_MAX + 1)
            elif _has_infinity(text):
                fault = _NOT_FINITE
            else:
                return value
    if len(text) <= _AGAIN_MAX_BYTES:
        return _Reader(text).read()
    return Bad(fault or b"Expected value but found invalid token at character %d" % (at + 1))


def _is_too_deep(text: bytes) -> bool:
    """Whether a text that was decoded is too deep. Its values are not looked at one by one."""
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    steps = _TEXT.sub(b"", text).translate(_STEPS, _NO_STEPS)
    return max(accumulate(memoryview(steps).cast("b")), default=0) > DEPTH_MAX


def _has_infinity(text: bytes) -> bool:
    """Whether a text that was decoded has a number that is infinite."""
    digits = text.translate(_DIGITS)
    if not any(large in digits for large in _LARGE):
        return False
    return math.inf in map(abs, map(float, _LONG_NUMBER.findall(_TEXT.sub(b"", text))))


# The names of tokens in errors.
_OBJ_BEGIN: Final = b"T_OBJ_BEGIN"
_OBJ_END: Final = b"T_OBJ_END"
_ARR_BEGIN: Final = b"T_ARR_BEGIN"
_ARR_END: Final = b"T_ARR_END"
_STRING: Final = b"T_STRING"
_NUMBER: Final = b"T_NUMBER"
_BOOLEAN: Final = b"T_BOOLEAN"
_NULL: Final = b"T_NULL"
_COLON: Final = b"T_COLON"
_COMMA: Final = b"T_COMMA"
_END: Final = b"T_END"

_PUNCTUATION: Final = {
    b"{": _OBJ_BEGIN,
    b"}": _OBJ_END,
    b"[": _ARR_BEGIN,
    b"]": _ARR_END,
    b":": _COLON,
    b",": _COMMA,
}
_WORDS: Final = ((b"true", _BOOLEAN, True), (b"false", _BOOLEAN, False), (b"null", _NULL, None))
_VALUES: Final = (_STRING, _NUMBER, _BOOLEAN, _NULL)

_SPACES: Final = re.compile(rb"[ \t\n\r]*")
_PLAIN: Final = re.compile(rb'[^"\\\0]*')
_HEX4: Final = re.compile(rb"[0-9a-fA-F]{4}")
_DECIMAL: Final = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL: Final = re.compile(
    rb"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
)
# These begin a number for strtod, but not in JSON.
_ODD_NUMBER: Final = re.compile(rb"\+|-?(?:[iI][nN][fF]|[nN][aA][nN])")
_NO_NUMBER: Final = re.compile(rb"[+-]?(?:[iI][nN][fF]|[nN][aA][nN])")
_ESCAPES: Final = {
    b'"': b'"',
    b"\\": b"\\",
    b"/": b"/",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
}


class _Reader:
    """Reads one text token by token; for texts that Python's decoder refuses."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        self.at = 0  # the end of the present token
        self.index = 0  # the beginning of the token, or of the error in it
        self.kind = _END  # the name of the present token, or its error
        self.value: Json = None
        self.fault: bytes | None = None

    def read(self) -> "Json | Bad":
        text = self.text
        if len(text) >= 2 and (text[0] == 0 or text[1] == 0):
            return Bad(_UTF16)
        self._next()
        value = self._document()
        if self.fault is None:
            self._next()
            if self.kind != _END:
                self._expected(b"the end")
        return value if self.fault is None else Bad(self.fault)

    def _expected(self, what: bytes) -> None:
        if self.fault is None:
            self.fault = b"Expected %b but found %b at character %d" % (
                what,
                self.kind,
                self.index + 1,
            )

    def _document(self) -> Json:
        """Read a value whose first token is the present one; open containers are on a stack."""
        stack: list[tuple[Json, str]] = []  # the outer containers, each with its present key
        container: Json = None
        key = ""
        while True:
            if self.kind in (_OBJ_BEGIN, _ARR_BEGIN):
                stack.append((container, key))
                if len(stack) > DEPTH_MAX:
                    self.fault = (_TOO_DEEP + b" at character %d") % (len(stack), self.at)
                    return None
                container = {} if self.kind == _OBJ_BEGIN else []
                self._next()
                if self.kind != (_OBJ_END if isinstance(container, dict) else _ARR_END):
                    if isinstance(container, dict):
                        key = self._key()
                    if self.fault is not None:
                        return None
                    continue
                value: Json = container
                container, key = stack.pop()
            elif self.kind in _VALUES:
                value = self.value
            else:
                self._expected(b"value")
                return None
            while True:  # a value is complete: pop all containers that end with it
                if container is None:
                    return value
                if self._put(container, key, value):
                    value = container
                    container, key = stack.pop()
                    continue
                if self.fault is None and isinstance(container, dict):
                    key = self._key()
                if self.fault is not None:
                    return None
                break

    def _put(self, container: Json, key: str, value: Json) -> bool:
        """Add a value to its container, and skip the next token; return whether that ends it."""
        self._next()
        if isinstance(container, dict):
            container[key] = value
            if self.kind == _OBJ_END:
                return True
            if self.kind != _COMMA:
                self._expected(b"comma or object end")
        else:
            container.append(value)
            if self.kind == _ARR_END:
                return True
            if self.kind != _COMMA:
                self._expected(b"comma or array end")
        if self.fault is None:
            self._next()
        return False

    def _key(self) -> str:
        """Read the key at the present token, and advance to its value."""
        if self.kind != _STRING:
            self._expected(b"object key string")
            return ""
        key: str = self.value
        self._next()
        if self.kind != _COLON:
            self._expected(b"colon")
        else:
            self._next()
        return key

    # --- tokens ---------------------------------------------------------------------------------

    def _next(self) -> None:
        text = self.text
        found = _SPACES.match(text, self.at)
        assert found is not None
        self.at = self.index = found.end()
        first = text[self.at : self.at + 1]
        if first in (b"", b"\0"):
            self.kind = _END
        elif first in _PUNCTUATION:
            self.kind = _PUNCTUATION[first]
            self.at += 1
        elif first == b'"':
            self._string()
        elif first in b"-0123456789" or _ODD_NUMBER.match(text, self.at):
            self._number()
        else:
            for word, kind, value in _WORDS:
                if text.startswith(word, self.at):
                    self.kind, self.value = kind, value
                    self.at += len(word)
                    return
            self.kind = b"invalid token"

    def _number(self) -> None:
        at = self.at
        if found := _HEXADECIMAL.match(self.text, at):
            try:
                self.value = float.fromhex(found.group().decode())
            except OverflowError:
                self.value = math.inf
        elif found := _DECIMAL.match(self.text, at):
            self.value = float(found.group())
        elif _NO_NUMBER.match(self.text, at):
            self.value = math.inf
        else:
            self.kind = b"invalid number"
            return
        if not math.isfinite(self.value) and self.fault is None:
            self.fault = _NOT_FINITE
        self.kind = _NUMBER
        self.at = found.end() if found else len(self.text)

    def _string(self) -> None:
        text = self.text
        at = self.at + 1
        parts: list[bytes] = []
        while True:
            found = _PLAIN.match(text, at)
            assert found is not None
            parts.append(found.group())
            at = found.end()
            last = text[at : at + 1]
            if last == b'"':
                self.kind = _STRING
                self.value = b"".join(parts).decode(errors="surrogateescape")
                self.at = at + 1
                return
            if last != b"\\":
                self.kind, self.index = b"unexpected end of string", at
                return
            escape = text[at + 1 : at + 2]
            if escape == b"u":
                point, used = _code_point(text, at)
                if point < 0:
                    self.kind, self.index = b"invalid unicode escape code", at
                    return
                parts.append(chr(point).encode())
                at += used
            elif escape in _ESCAPES:
                parts.append(_ESCAPES[escape])
                at += 2
            else:
                self.kind, self.index = b"invalid escape code", at
                return


def _code_point(text: bytes, at: int) -> tuple[int, int]:
    r"""Read the code point of one escape `\uXXXX`, or of two that form a surrogate pair.

    Returns:
        The code point, or -1 if it is malformed; and the number of bytes read.
    """
    if not _HEX4.match(text, at + 2):
        return -1, 0
    point = int(text[at + 2 : at + 6], 16)
    if point & 0xF800 != 0xD800:
        return point, 6
    if point & 0x400 or text[at + 6 : at + 8] != b"\\u" or not _HEX4.match(text, at + 8):
        return -1, 0
    low = int(text[at + 8 : at + 12], 16)
    if low & 0xFC00 != 0xDC00:
        return -1, 0
    return 0x10000 + ((point & 0x3FF) << 10) + (low & 0x3FF), 12


# --- writing -------------------------------------------------------------------------------------
_SPECIAL: Final = re.compile('[\0-\x1f"\\\\/\x7f]')
_CONTROL: Final = re.compile("[\0-\x1f\x7f]")
_SHORT: Final = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_CONTROLS: Final = tuple(
    (character, _SHORT.get(character, f"\\u{ord(character):04x}"))
    for character in map(chr, (*range(0x20), 0x7F))
)
# Integers below this fit into the 14 digits that are written.
_WHOLE_MAX: Final = 10**14


def _quote(text: str) -> str:
    if text.isidentifier() or _SPECIAL.search(text) is None:
        return '"' + text + '"'
    # One replacement after the other: a call for each character would take a node a second for the
    # largest data of one job, if it has many of them.
    text = text.replace("\\", "\\\\").replace('"', '\\"').replace("/", "\\/")
    if _CONTROL.search(text) is not None:
        for character, escape in _CONTROLS:
            text = text.replace(character, escape)
    return '"' + text + '"'


def encode(value: Json) -> bytes:
    """Encode a value. It may contain bytes as strings, tuples as lists, ints as numbers, `Encoded`.

    The recursion is bounded: a value is at most as deep as decoded data plus the levels that
    answers add.
    """
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts).encode(errors="surrogateescape")


def _write(value: Json, parts: list[str]) -> None:
    kind = type(value)
    if kind is float:
        parts.append(f"{value:.14g}")
    elif kind is str:
        parts.append(_quote(value))
    elif kind is list or kind is tuple:
        _write_items(value, parts)
    elif kind is dict:
        _write_pairs(value, parts)
    elif kind is bytes:
        parts.append(_quote(value.decode(errors="surrogateescape")))
    elif kind is Encoded:
        parts.append(value.text.decode(errors="surrogateescape"))
    elif value is None:
        parts.append("null")
    elif kind is bool:
        parts.append("true" if value else "false")
    elif kind is int:
        parts.append(str(value) if -_WHOLE_MAX < value < _WHOLE_MAX else f"{value:.14g}")
    else:
        _write_items(value, parts)  # a named tuple


def _write_items(items: Json, parts: list[str]) -> None:
    if not items:
        parts.append("{}")
        return
    if type(items[0]) is float and set(map(type, items)) == {float}:
        # One call for all of them: a list may have half a million, and one each takes 180 ms.
        parts.append("[" + ("%.14g," * len(items) % tuple(items))[:-1] + "]")
        return
    before = "["
    for item in items:
        if type(item) is float:  # a call for each would take longer
            parts.append(f"{before}{item:.14g}")
        elif item == []:
            parts.append(before + "{}")
        else:
            parts.append(before)
            _write(item, parts)
        before = ","
    parts.append("]")


def _write_pairs(pairs: Json, parts: list[str]) -> None:
    before = "{"
    for key, item in pairs.items():
        name = key.decode(errors="surrogateescape") if isinstance(key, bytes) else key
        parts.append(before + _quote(name) + ":")
        _write(item, parts)
        before = ","
    parts.append("}" if pairs else "{}")
