"""Glob patterns match as in Redis 7.0."""

import time

import pytest

from beanpole.protocol.resp.globs import PATTERN_MAX_BYTES, Pattern, Text

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
    (b"?*?", b"a", False),
    (b"?*?", b"ab", True),
    (b"ab*bc", b"abc", False),
    (b"[\x00-\xff]*[^\x00-\xfe]", b"a\xfe\xff", True),
    (b"a*[bc]*d?e", b"aabccdxe", True),
    (b"a*[bc]*d?e", b"aadbcxe", False),
    (b"*[a-", b"x-", True),
    (b"*\\", b"x\\", True),
]


@pytest.mark.parametrize(("pattern", "text", "fits"), FITS)
def test_a_pattern_fits(pattern: bytes, text: bytes, fits: bool) -> None:
    assert Pattern(pattern).fits(Text(text)) is fits


def test_texts_may_share_what_they_found_out() -> None:
    text = Text(b"ql:w:worker-7")
    fitting = [
        p for p in (b"ql:w:*-[0-9]", b"*-[0-6]", b"*w?r*", b"*[^:]") if Pattern(p).fits(text)
    ]
    assert fitting == [b"ql:w:*-[0-9]", b"*w?r*", b"*[^:]"]


@pytest.mark.parametrize(
    "piece", [b"*a", b"[\x00-\xff]", b"*[^b]", b"?", b"[ab]", b"[acegikmoqsuwy]", b"a"]
)
def test_no_pattern_takes_long(piece: bytes) -> None:
    """Both to prepare and to match: a hundred of them take some 20 ms."""
    pattern = b"*" + piece * ((PATTERN_MAX_BYTES - 4) // len(piece))
    text = Text(b"ql:w:" + b"a" * 4095 + b"b")
    began_s = time.thread_time()  # other threads of this process may be busy
    for number in range(100):
        # The suffix fits, so that all the rest is tried.
        assert not Pattern(pattern + b"%c*b" % (128 + number)).fits(text)
    assert time.thread_time() - began_s < 1


def test_a_match_makes_few_numbers() -> None:
    """One comparison of the text for each different bound, for all patterns together."""
    text = Text(b"a" * 4096)
    found = []

    class Counted(dict[int, int]):
        def __setitem__(self, bound: int, places: int) -> None:
            found.append(bound)
            super().__setitem__(bound, places)

    text._below = Counted(text._below)
    for number in range(10):
        assert not Pattern(b"*" + b"[ab]" * 50 + b"z*%d*" % number).fits(text)
    assert sorted(found) == [*b"ac", *b"z{"]
