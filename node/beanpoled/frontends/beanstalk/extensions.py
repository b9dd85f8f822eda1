"""What a node understands beyond the beanstalk protocol, and from which machine version on.

Nothing of it is sent to a client that did not ask for it. What the words do is in `connection`.
"""

from hashlib import sha256
from typing import Final

from beanpole.core.users import USERS_SINCE
from beanpole.protocol.beanstalk import requests as r

# Below this version a node of an older release may be in the cluster, where nobody could resume.
SESSIONS_SINCE: Final = 4

_ALWAYS: Final = (r.WORDS[r.PUT_UNIQUE].encode(),)
_SESSIONS: Final = (r.WORDS[r.KEEP].encode(), r.WORDS[r.RESUME].encode())


_USERS: Final = (r.WORDS[r.AUTH].encode(),)


def names(version: int) -> tuple[bytes, ...]:
    """Return the words that a node knows while its machine has this version."""
    words: tuple[bytes, ...] = _ALWAYS
    if version >= SESSIONS_SINCE:
        words += _SESSIONS
    if version >= USERS_SINCE:
        words += _USERS
    return words


def secret_of(token: bytes) -> bytes:
    """Return what the cluster keeps of a client's token, from which nobody can tell it.

    Logs, snapshots and backups have this in place of the token: whoever reads one of them cannot
    take a session over.
    """
    return sha256(token).digest()
