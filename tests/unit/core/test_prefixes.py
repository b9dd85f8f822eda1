"""Longest-prefix match against its definition."""

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from beanpole.core.jobs.prefixes import NONE, ranges_of

# Only four bytes, so that names often share a prefix. No byte is greater than the last of them.
NAMES = st.lists(st.sampled_from(b"\0a\xfe\xff"), min_size=1, max_size=5).map(bytes)


def longest(name: bytes, prefixes: list[bytes]) -> int:
    found = [number for number, one in enumerate(prefixes) if name.startswith(one)]
    return max(found, key=lambda number: len(prefixes[number]), default=NONE)


@given(st.sets(NAMES, max_size=12), st.lists(NAMES | st.just(b""), max_size=20))
def test_the_range_of_a_name_has_its_longest_prefix(chosen: set[bytes], names: list[bytes]) -> None:
    prefixes = sorted(chosen)
    found = ranges_of(prefixes)
    for name in [*names, *prefixes, *[one + b"\0" for one in prefixes], *found.boundaries]:
        number = found.longest_prefix[bisect_right(found.boundaries, name)]
        assert number == longest(name, prefixes), name
    assert len(found.boundaries) <= 2 * len(prefixes)
    assert found.boundaries == sorted(set(found.boundaries))


@given(st.sets(NAMES, max_size=12))
def test_the_parent_of_a_prefix_is_its_longest_other_prefix(chosen: set[bytes]) -> None:
    prefixes = sorted(chosen)
    for number, parent in enumerate(ranges_of(prefixes).parent):
        others = list(prefixes)
        others[number] = b"no prefix of it"
        assert parent == longest(prefixes[number], others) < number
