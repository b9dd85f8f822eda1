"""Configuration options that clients set, and their values as numbers."""

from typing import Any

from beanpole import qless as q
from beanpole.core.qless import limits
from beanpole.core.qless.tables import Tables


def number(t: Tables, option: bytes, default: float) -> float:
    """Return an option as a number: as set, or its default, or else the given default.

    A value that is not a number, or too large, counts as not set: in the original, it breaks every
    call that needs it.
    """
    value = t.config.get(option)
    if value is not None:
        found = _number(value)
        if found is not None:
            return found
    known = q.CONFIG_DEFAULTS.get(option)
    found = None if known is None else _number(known)
    return default if found is None else found


def config_set(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """CONFIG_SET: set an option."""
    option, value = args
    if option not in t.config and len(t.config) >= q.OPTIONS_MAX:
        return limits.OPTIONS
    t.publish(b"log", ((b"event", b"config_set"), (b"option", option), (b"value", value)))
    t.set_option(option, value)
    return q.OK, None


def config_unset(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """CONFIG_UNSET: reset an option to its default."""
    option: bytes = args[0]
    t.publish(b"log", ((b"event", b"config_unset"), (b"option", option)))
    t.set_option(option, None)
    return q.OK, None


def config_get(t: Tables, _flavour: int, _now: float, args: tuple[Any, ...]) -> q.Result:
    """CONFIG_GET: return the value of an option, None if it is not set."""
    return q.OK, t.config.get(args[0])


def config_all(t: Tables, _flavour: int, _now: float, _args: tuple[Any, ...]) -> q.Result:
    """CONFIG_ALL: return all options that are set."""
    if all_bytes(t) > q.ANSWER_MAX_BYTES:
        return limits.ANSWER
    return q.OK, tuple(t.config.items())


def all_bytes(t: Tables) -> int:
    """Return the total size in bytes of the names and values of all options."""
    return sum([len(name) + len(value) for name, value in t.config.items()])


def _number(value: bytes) -> float | None:
    if b"_" in value:  # float() accepts underscores, Lua does not
        return None
    try:
        found = float(value)
    except ValueError:
        return None
    return found if abs(found) <= q.NUMBER_MAX else None  # NaN fails the comparison
