"""As whom a call of gRPC is made: its token, its address, its certificate.

What the caller may do is decided in `guarding`. One is set for the time of each call, so that all
that is done for it on the way knows whose it is.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import Final, NamedTuple

from beanpole.client.rpc import TOKEN_KEY
from beanpole.core.users import User, Users
from beanpole.events import GRPC
from beanpoled.origin.opening import address_of

_SCHEME: Final = "bearer "
NAMES_KEY: Final = "x509_subject_alternative_name"


class Caller(NamedTuple):
    """One caller.

    Attributes:
        host: by its address, as events name it; empty if nobody knows.
        names: in its certificate.
        token: the digest of what it gave as its token; empty if it gave none.
        metadata: what to say for it to another node.
        name: of the user as whom it acts, once that is known.
    """

    host: bytes = b""
    names: tuple[bytes, ...] = ()
    token: bytes = b""
    metadata: tuple[tuple[str, str], ...] = ()
    name: str = ""

    def user(self, users: Users) -> User | None:
        """Return as whom it acts; None if no user has its token."""
        if self.token:
            return users.owner(self.token)
        name = users.by_rule(GRPC, address_of(self.host), self.names) if users.rules else b""
        return users.of(name, b"")


_NOBODY: Final = Caller()
CALLER: Final[ContextVar[Caller]] = ContextVar("CALLER", default=_NOBODY)


def read(
    host: bytes, names: Iterable[bytes], metadata: Iterable[tuple[str, str | bytes]]
) -> Caller:
    """Return a caller by what gRPC says of it."""
    found = [str(value) for key, value in metadata if key == TOKEN_KEY]
    said = found[-1] if found else ""
    token = said[len(_SCHEME) :].strip() if said[: len(_SCHEME)].lower() == _SCHEME else ""
    digest = sha256(token.encode()).digest() if said else b""
    return Caller(host, tuple(names), digest, ((TOKEN_KEY, said),) if said else ())
