"""Names of queues in requests: parse them, and refuse names that no queue can have.

The textual form of names is in `beanpole.core.jobs.display_names`; the rules of valid names are in
the protocols.
"""

from collections.abc import Callable, Mapping
from typing import Final

from beanpole.core.jobs import display_names
from beanpole.core.jobs.spaces import bare
from beanpole.events import BEANSTALK, GEARMAN, PROTOCOL_NAMES, QLESS, WORKQ
from beanpole.protocol.beanstalk.requests import is_tube_name
from beanpole.protocol.workq.requests import is_name
from beanpoled.rpc.server import CallRefused

# Follows the text of a wrong name.
NO_TUBE: Final = "is no name of a tube: 1 to 200 of A-Z a-z 0-9 - + / ; . $ _ ( )"
NO_QLESS: Final = "jobs of qless are listed and changed in their own protocol"


def is_of(text: str, protocol: int) -> bool:
    """Whether a name or pattern, right or wrong, is in the space of a protocol with a prefix."""
    return text.startswith(PROTOCOL_NAMES[protocol] + display_names.SEPARATOR)


def queue_name(text: str, field: str) -> bytes:
    """Return the name of a queue with the prefix of its space.

    Raises:
        CallRefused: no queue has such a name, or it is one of qless.
    """
    if is_of(text, QLESS):
        raise CallRefused("QLESS", field, f"{text!r}: {NO_QLESS}")
    try:
        return display_names.parsed(text)
    except ValueError as error:
        raise CallRefused("BAD_NAME", field, str(error)) from None


def new_queue_name(text: str, field: str) -> bytes:
    """Return the name of a queue that may be created.

    Raises:
        CallRefused: as `queue_name`, or its clients could not name it: its jobs would be lost.
    """
    name = queue_name(text, field)
    can_be_said, words = _RULES[display_names.space_of(name)]
    if not can_be_said(name):
        raise CallRefused("BAD_NAME", field, f"{text!r} {words}")
    return name


# By the protocol of the space; the names include its prefix.
_RULES: Final[Mapping[str, tuple[Callable[[bytes], bool], str]]] = {
    PROTOCOL_NAMES[BEANSTALK]: (is_tube_name, NO_TUBE),
    PROTOCOL_NAMES[WORKQ]: (
        lambda name: is_name(bare(name)),
        "is no name of a queue of Workq: A-Z a-z 0-9 _ . -",
    ),
    PROTOCOL_NAMES[GEARMAN]: (
        lambda name: bare(name) != b"" and b"\0" not in name,
        "is no name of a function: one byte or more, and none of them 0",
    ),
}
