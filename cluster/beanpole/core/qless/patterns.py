"""Patterns of queue names and of priorities: stored for clients, not used by the server."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.tables import Tables


def set_patterns(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """SET_PATTERNS: replace all patterns of a kind."""
    kind, pairs = args
    if len(pairs) > q.OPTIONS_MAX:
        return limits.OPTIONS
    t.clear_patterns(kind)
    for name, text in pairs:
        t.set_pattern(kind, name, text)
    return q.OK, None


def edit_patterns(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """EDIT_PATTERNS: change some patterns of a kind, perhaps after clearing all of them."""
    kind, all_go, pairs = args
    kept = t.patterns[kind]
    before = tuple(kept)
    if len(pairs) + (0 if all_go else len(kept)) > q.OPTIONS_MAX:
        return limits.OPTIONS
    size = sum([len(name) + len(text) for name, text in pairs])
    size += 0 if all_go else sum([len(name) + len(text) for name, text in kept.items()])
    if size > q.DATA_MAX_BYTES:
        return q.TOO_MUCH, (b"bytes of patterns", q.DATA_MAX_BYTES)
    if all_go:
        t.clear_patterns(kind)
    for name, text in pairs:
        key = b"%d" % len(kept) if kind == q.PATTERNS_OF_PRIORITIES else name
        t.set_pattern(kind, key, text)
    return q.OK, before


def patterns(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """PATTERNS: return all patterns of a kind, in the order in which they were set."""
    return q.OK, tuple(t.patterns[args[0]].items())
