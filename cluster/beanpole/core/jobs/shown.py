"""Names of queues and jobs as people and other programs read them: in events, metrics, commands.

Belongs here: the one form in which a queue of another space than beanstalk's is written,
`gearman:resize`, and the one text of an external id. A name of a beanstalk tube has no colon, so
that no two queues have the same text as long as their names are UTF-8.
"""

from collections.abc import Callable
from typing import Final

from beanpole.core.jobs.spaces import PREFIX_END, SPACES, Rules, Space
from beanpole.events import GEARMAN, PROTOCOL_NAMES, WORKQ

# Between the protocol that a space is called by and the name of a queue.
SEPARATOR: Final = ":"
# In a UUID's text, a hyphen stands before these digits.
_HYPHENS: Final = (8, 12, 16, 20)
UUID_BYTES: Final = 16
# What derived UUIDs begin with: of version 4 by their form, and not by chance one of a client's. An
# id has less than the 56 bits behind it.
_MARK: Final = b"beanpo\x4a\x0b\x80"


def space(one: Space) -> str:
    """Return by which protocol a space is called."""
    return PROTOCOL_NAMES[one.number]


def queue(name: bytes) -> str:
    """Return the text of a queue's name, which has the prefix of its space."""
    rules = _rules(name)
    if rules is None or not rules.prefix:
        return text(name)
    return f"{PROTOCOL_NAMES[rules.protocols[0]]}{SEPARATOR}{text(name[1:])}"


def _rules(name: bytes) -> Rules | None:
    """The row of the space that a name is of; None if there is none of its prefix."""
    prefix = name[:1] if name and name[0] < PREFIX_END else b""
    for rules in SPACES.values():
        if rules.prefix == prefix:
            return rules
    return None


def space_of(name: bytes) -> str:
    """Return by which protocol the space of a queue's name is called; empty if there is none."""
    rules = _rules(name)
    return "" if rules is None else PROTOCOL_NAMES[rules.protocols[0]]


def parsed(text: str) -> bytes:
    """Return the name of a queue, with the prefix of its space, from what `queue` gave.

    Raises:
        ValueError: there is no such space, or its queues have no such names.
    """
    name = text.encode()
    before, separator, behind = text.partition(SEPARATOR)
    rules = SPACES[min(SPACES)]
    if separator:
        found = [rules for rules in SPACES.values() if PROTOCOL_NAMES[rules.protocols[0]] == before]
        if not found:
            known = ", ".join(PROTOCOL_NAMES[rules.protocols[0]] for rules in SPACES.values())
            raise ValueError(f"{text!r} begins with no protocol that has queues: {known}")
        rules = found[0]
        name = rules.prefix + behind.encode()
    size = len(name) - len(rules.prefix)
    if size > rules.name_max_bytes:
        raise ValueError(f"a name of {size} bytes; there are at most {rules.name_max_bytes}")
    if not rules.prefix and (not name or name[0] < PREFIX_END):
        raise ValueError(f"{text!r} is no name of a tube")
    return name


def external_id(space: int, value: bytes) -> str:
    """Return the text of an external id, as the clients of its space know it.

    Args:
        space: the number of the space.
        value: the id that the machine has.
    """
    return _EXTERNAL_IDS.get(space, text)(value)


def text(name: bytes) -> str:
    """Return any name of a client's as text; bytes that are not UTF-8 as \\xff."""
    return name.decode(errors="backslashreplace")


def derived(job_id: int) -> bytes:
    """Return the UUID by which Workq knows a job that another protocol made."""
    return _MARK + job_id.to_bytes(UUID_BYTES - len(_MARK), "big")


def job_of(uuid: bytes) -> int:
    """Return the id of the job of a UUID that `derived` gave; 0 if it did not."""
    if len(uuid) != UUID_BYTES or not uuid.startswith(_MARK):
        return 0
    return int.from_bytes(uuid[len(_MARK) :], "big")


def _uuid(value: bytes) -> str:
    """16 bytes in the canonical form; any others as they are."""
    if len(value) != UUID_BYTES:
        return text(value)
    digits = value.hex()
    parts = zip((0, *_HYPHENS), (*_HYPHENS, len(digits)), strict=True)
    return "-".join(digits[first:end] for first, end in parts)


def _unique(value: bytes) -> str:
    """Return the unique of an external id: the bytes behind the function, "-" for a digest."""
    unique = value.partition(b"\0")[2]
    return "-" if unique[:1] == b"\0" else text(unique)


# By the numbers of spaces; those of others are texts.
_EXTERNAL_IDS: Final[dict[int, Callable[[bytes], str]]] = {WORKQ: _uuid, GEARMAN: _unique}
