"""Glob patterns match as in Redis 7.0."""

import time

import pytest

from beanpole.protocol.resp.globs import PATTERN_MAX_BYTES, matcher

FITS = [
    (b"*", b"", True),
    (b"*", b"any\nthing\0", True),
    (b"", b"", True),
    (b"", b"a", False),
    (b"ql:*", b"ql:log", True),
    (b"ql:*", b"q", False),
    (b"*log", b"ql:log", True),
    (b"*log", b"ql:logs", False),
    (b"a*b*c", b"axxbxxbc", True),
    (b"a*b*c", b"acb", False),
    (b"a*ab", b"aab", True),
    (b"a*ab", b"ab", False),
    (b"*ab*ab", b"ab", False),
    (b"**a**", b"xay", True),
    (b"h?llo", b"hello", True),
    (b"h?llo", b"hllo", False),
    (b"h[ae]llo", b"hallo", True),
    (b"h[ae]llo", b"hillo", False),
    (b"h[^e]llo", b"hallo", True),
    (b"h[^e]llo", b"hello", False),
    (b"[a-c]x", b"bx", True),
    (b"[c-a]x", b"bx", True),
    (b"[a-c]x", b"dx", False),
    (b"[\\]]", b"]", True),
    (b"[\\-]", b"-", True),
    (b"[]", b"a", False),
    (b"[]a", b"a", False),
    (b"[^]", b"a", True),
    (b"[abc", b"b", True),
    (b"[a-", b"-", True),
    (b"x[", b"x", False),
    (b"\\*", b"*", True),
    (b"\\*", b"a", False),
    (b"a\\", b"a\\", True),
    (b".+", b".+", True),
    (b".+", b"aa", False),
    (b"\xff?", b"\xff\xfe", True),
]


@pytest.mark.parametrize(("pattern", "text", "fits"), FITS)
def test_a_pattern_fits(pattern: bytes, text: bytes, fits: bool) -> None:
    assert matcher(pattern)(text) is fits


def test_no_pattern_takes_long() -> None:
    pattern = (b"*a" * PATTERN_MAX_BYTES)[: PATTERN_MAX_BYTES - 1] + b"b"
    fits = matcher(pattern)
    began_s = time.process_time()
    assert not fits(b"a" * 4096)
    assert time.process_time() - began_s < 1
