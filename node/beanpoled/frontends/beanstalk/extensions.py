"""Extensions of the beanstalk protocol, and the machine version that each needs.

None of them is ever sent to a client that did not ask for it. The commands are in `connection`.
"""

from hashlib import sha256
from typing import Final

from beanpole.core.users import USERS_SINCE
from beanpole.protocol.beanstalk import requests as r

# Below this version the cluster may have nodes of an older release, which cannot resume sessions.
SESSIONS_SINCE: Final = 4

_ALWAYS: Final = (r.WORDS[r.PUT_UNIQUE].encode(),)
_SESSIONS: Final = (r.WORDS[r.KEEP].encode(), r.WORDS[r.RESUME].encode())


_USERS: Final = (r.WORDS[r.AUTH].encode(),)


def names(version: int) -> tuple[bytes, ...]:
    """Return the words of the extensions that a node of this machine version supports."""
    words: tuple[bytes, ...] = _ALWAYS
    if version >= SESSIONS_SINCE:
        words += _SESSIONS
    if version >= USERS_SINCE:
        words += _USERS
    return words


def secret_of(token: bytes) -> bytes:
    """Return the digest of a client's token, which the cluster keeps in its place.

    Logs, snapshots and backups contain only the digest: a reader of one of them cannot take a
    session over.
    """
    return sha256(token).digest()
