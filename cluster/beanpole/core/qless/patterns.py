"""Patterns of names of queues, and of their priorities: kept for clients, not used here."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.tables import Tables


def set_patterns(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """Put new patterns in the place of all of their kind."""
    kind, pairs = args
    if len(pairs) > q.OPTIONS_MAX:
        return limits.OPTIONS
    kept = t.patterns[kind]
    kept.clear()
    for name, text in pairs:
        kept[name] = text
    return q.OK, None


def patterns(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """All patterns of a kind, in the order in which they were given."""
    return q.OK, tuple(t.patterns[args[0]].items())
