"""Display names of queues and jobs: in events, metrics and commands.

This module defines the text of a queue of another space than beanstalk's, `gearman:resize`, and the
text of an external id. The name of a beanstalk tube has no colon, and bytes that are not UTF-8 are
escaped so that no two queues have the same text.
"""

import re
from collections.abc import Callable
from typing import Final

from beanpole.core.jobs.spaces import PREFIX_END, SPACES, Rules, Space, bare, prefix_of
from beanpole.events import GEARMAN, PROTOCOL_NAMES, WORKQ

# The separator between the protocol name of a space and the name of a queue.
SEPARATOR: Final = ":"
# In a UUID's text, a hyphen precedes the digits at these indexes.
_HYPHENS: Final = (8, 12, 16, 20)
UUID_BYTES: Final = 16
# The prefix of derived UUIDs. In form they are of version 4, and a client's UUID does not begin
# with it by chance. A job id fits into the 56 bits after it.
_MARK: Final = b"beanpo\x4a\x0b\x80"
# Backslashes that would belong to an escaped byte, written \xff, or precede one. Each of them is
# doubled, so an odd number before "xff" means a byte. Bytes below 0x80 are never escaped.
_BEFORE_ESCAPE: Final = re.compile(r"\\+(?=x[89a-f][0-9a-f]|[\udc80-\udcff])")
_ESCAPED: Final = re.compile(r"(\\+)x([89a-f][0-9a-f])")
_NO_UTF_8: Final = re.compile(r"[\udc80-\udcff]")


def space(one: Space) -> str:
    """Return the name of the protocol by which a space is called."""
    return PROTOCOL_NAMES[one.number]


def queue(name: bytes) -> str:
    """Return the text of a queue's name, given with the prefix of its space."""
    rules = _rules(name)
    if rules is None or not rules.prefix:
        return text(name)
    return f"{PROTOCOL_NAMES[rules.protocols[0]]}{SEPARATOR}{text(bare(name))}"


def _rules(name: bytes) -> Rules | None:
    """Return the rules of a name's space; None if no space has its prefix."""
    prefix = prefix_of(name)
    for rules in SPACES.values():
        if rules.prefix == prefix:
            return rules
    return None


def space_of(name: bytes) -> str:
    """Return the protocol name of the space of a queue's name; empty if there is no such space."""
    rules = _rules(name)
    return "" if rules is None else PROTOCOL_NAMES[rules.protocols[0]]


def parsed(text: str) -> bytes:
    """Return the name of a queue, with the prefix of its space, from a text that `queue` returned.

    Raises:
        ValueError: there is no such space, or its queues have no such names.
    """
    name = bytes_of(text)
    before, separator, behind = text.partition(SEPARATOR)
    rules = SPACES[min(SPACES)]
    if separator:
        found = [rules for rules in SPACES.values() if PROTOCOL_NAMES[rules.protocols[0]] == before]
        if not found:
            known = ", ".join(PROTOCOL_NAMES[rules.protocols[0]] for rules in SPACES.values())
            raise ValueError(f"{text!r} begins with no protocol that has queues: {known}")
        rules = found[0]
        name = rules.prefix + bytes_of(behind)
    size = len(name) - len(rules.prefix)
    if size > rules.name_max_bytes:
        raise ValueError(f"a name of {size} bytes; there are at most {rules.name_max_bytes}")
    if not rules.prefix and (not name or name[0] < PREFIX_END):
        raise ValueError(f"{text!r} is no name of a tube")
    return name


def external_id(space: int, value: bytes) -> str:
    """Return the text of an external id, in the form that the clients of its space use.

    Args:
        space: the number of the space.
        value: the id as stored in the machine.
    """
    return _EXTERNAL_IDS.get(space, text)(value)


def text(name: bytes) -> str:
    """Return a name given by a client as text, with bytes that are not UTF-8 escaped as \\xff."""
    found = name.decode(errors="surrogateescape")
    if "\\" in found:
        found = _BEFORE_ESCAPE.sub(lambda run: 2 * run[0], found)
    return _NO_UTF_8.sub(lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", found)


def bytes_of(text: str) -> bytes:
    """Return the name that `text` has made a text of."""
    return _ESCAPED.sub(_byte, text).encode(errors="surrogateescape")


def _byte(found: re.Match[str]) -> str:
    run, digits = found.groups()
    if len(run) % 2:
        return run[: len(run) // 2] + chr(0xDC00 + int(digits, 16))
    return f"{run[: len(run) // 2]}x{digits}"


def derived(job_id: int) -> bytes:
    """Return the UUID under which Workq's clients know a job that another protocol created."""
    return _MARK + job_id.to_bytes(UUID_BYTES - len(_MARK), "big")


def job_of(uuid: bytes) -> int:
    """Return the job id in a UUID that `derived` returned; 0 for any other UUID."""
    if len(uuid) != UUID_BYTES or not uuid.startswith(_MARK):
        return 0
    return int.from_bytes(uuid[len(_MARK) :], "big")


def _uuid(value: bytes) -> str:
    """Return 16 bytes in the canonical form of a UUID; any other value as text."""
    if len(value) != UUID_BYTES:
        return text(value)
    digits = value.hex()
    parts = zip((0, *_HYPHENS), (*_HYPHENS, len(digits)), strict=True)
    return "-".join(digits[first:end] for first, end in parts)


def _unique(value: bytes) -> str:
    """Return the unique id in an external id: the bytes after the function, "-" for a digest."""
    unique = value.partition(b"\0")[2]
    return "-" if unique[:1] == b"\0" else text(unique)


# By the numbers of spaces; the external ids of other spaces are displayed as text.
_EXTERNAL_IDS: Final[dict[int, Callable[[bytes], str]]] = {WORKQ: _uuid, GEARMAN: _unique}
