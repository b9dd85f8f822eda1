"""Stretches of names against the definition: the longest beginning that a name has."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from beanpole.core.jobs.beginnings import NONE, stretches_of

# Few bytes, so that names often begin alike; nothing is behind the last of them.
NAMES = st.lists(st.sampled_from(b"\0a\xfe\xff"), min_size=1, max_size=5).map(bytes)


def longest(name: bytes, beginnings: list[bytes]) -> int:
    found = [number for number, one in enumerate(beginnings) if name.startswith(one)]
    return max(found, key=lambda number: len(beginnings[number]), default=NONE)


@given(st.sets(NAMES, max_size=12), st.lists(NAMES | st.just(b""), max_size=20))
def test_the_stretch_of_a_name_has_its_longest_beginning(
    chosen: set[bytes], names: list[bytes]
) -> None:
    beginnings = sorted(chosen)
    found = stretches_of(beginnings)
    for name in [*names, *beginnings, *[one + b"\0" for one in beginnings], *found.borders]:
        number = found.longest[bisect_right(found.borders, name)]
        assert number == longest(name, beginnings), name
    assert len(found.borders) <= 2 * len(beginnings)
    assert found.borders == sorted(set(found.borders))


@given(st.sets(NAMES, max_size=12))
def test_around_a_beginning_is_the_longest_other_that_it_has(chosen: set[bytes]) -> None:
    beginnings = sorted(chosen)
    for number, around in enumerate(stretches_of(beginnings).around):
        others = list(beginnings)
        others[number] = b"no beginning of it"
        assert around == longest(beginnings[number], others) < number
