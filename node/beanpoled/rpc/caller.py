"""The identity of the caller of a gRPC call: its token, its address, its certificate.

`guarding` decides what the caller may do. The caller is set in a context variable for each call, so
that all code that runs for the call knows it.
"""

from collections.abc import Iterable
from contextvars import ContextVar
from hashlib import sha256
from typing import Final, NamedTuple

from beanpole.addresses import address_of
from beanpole.client.rpc import TOKEN_KEY
from beanpole.core.users import User, Users
from beanpole.events import GRPC
from beanpoled.origin.opening import either_case

_SCHEME: Final = "bearer "
# gRPC's key for the DNS names of a caller's certificate. Names of other kinds (an e-mail address, a
# URI) are not compared with those of members and of rules: a CA may sign them with less care.
NAMES_KEY: Final = "peer_dns"


class Caller(NamedTuple):
    """One caller.

    Attributes:
        host: its address, as events name it; empty if unknown.
        names: the DNS names in its certificate.
        token: the digest of its token; empty if it sent none.
        metadata: the metadata to send on its behalf to another node.
        name: the name of its user, once that is known.
        passed: whether its right has been checked, if it needs one: until then a call does nothing.
    """

    host: bytes = b""
    names: tuple[bytes, ...] = ()
    token: bytes = b""
    metadata: tuple[tuple[str, str], ...] = ()
    name: str = ""
    passed: bool = True

    def user(self, users: Users) -> User | None:
        """Return the user of the caller; None if no user has its token."""
        if self.token:
            return users.owner(self.token)
        name = b""
        if users.rules:
            name = users.by_rule(GRPC, address_of(self.host), either_case(self.names))
        return users.rows[name] if name else users.anonymous  # a rule names users that exist


_NOBODY: Final = Caller()
CALLER: Final[ContextVar[Caller]] = ContextVar("CALLER", default=_NOBODY)


def read(host: bytes, names: Iterable[bytes], sent: Iterable[tuple[str, str | bytes]]) -> Caller:
    """Return the caller that gRPC's metadata describe; its right is not checked yet."""
    found = [str(value) for key, value in sent if key == TOKEN_KEY]
    said = found[-1] if found else ""
    token = said[len(_SCHEME) :].strip() if said[: len(_SCHEME)].lower() == _SCHEME else ""
    digest = sha256(token.encode()).digest() if said else b""
    metadata = ((TOKEN_KEY, said),) if said else ()
    return Caller(host, tuple(names), digest, metadata, passed=False)
