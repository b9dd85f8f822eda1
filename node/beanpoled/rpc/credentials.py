"""TLS of gRPC, between nodes and for operators: both sides show a certificate of the nodes' CA.

`trust.certificates` loads and reloads the certificates.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

import grpc
import grpc.aio

from beanpole.client.rpc import CHANNEL_OPTIONS
from beanpoled.rpc.caller import NAMES_KEY
from beanpoled.rpc.server import Context, fail
from beanpoled.trust.certificates import SESSIONS_S, Certificates, Pem
from beanpoled.trust.handshakes import OF_ANOTHER, WORDS
from beanpoled.trust.trust import Trust
from beanpoled.view import NodeView

# gRPC would share one connection among all channels to an address: a new channel would get the one
# that a broken path has silenced, as long as a call still waits for it.
_OPTIONS: Final = (*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1))


def of_server(
    trust: Trust, clock: Callable[[], float] = time.monotonic
) -> grpc.ServerCredentials | None:
    """Return the credentials of a node's server; None if it does not use TLS."""
    certificates = trust.of_peers
    if certificates is None:
        return None
    return grpc.dynamic_ssl_server_credentials(
        _configuration(certificates.pem),
        _Fetcher(certificates, clock),  # type: ignore[arg-type]  # None means: no other ones
        require_client_authentication=True,
    )


def channel(trust: Trust, member: str, address: str) -> grpc.aio.Channel:
    """Return a channel to a member, whose certificate must contain its id as a name."""
    certificates = trust.of_peers
    if certificates is None:
        return grpc.aio.insecure_channel(address, options=_OPTIONS)
    pem = certificates.pem
    shown = grpc.ssl_channel_credentials(pem.ca, pem.key, pem.certificate)
    options = (*_OPTIONS, ("grpc.ssl_target_name_override", member))
    return grpc.aio.secure_channel(address, shown, options=options)


async def check_member(view: NodeView, trust: Trust, context: Context) -> None:
    """Refuse a call between nodes if the caller's certificate names no member."""
    shown = context.auth_context().get(NAMES_KEY, ())
    names = {name.decode(errors="replace") for name in shown}
    if names.isdisjoint(view.members):
        now_s = asyncio.get_running_loop().time()
        trust.handshakes.refused(OF_ANOTHER, "a caller of gRPC", now_s)
        words = f"{WORDS[OF_ANOTHER]}: no member is among its names"
        await fail(context, grpc.StatusCode.UNAUTHENTICATED, words, "CERTIFICATE_OF_ANOTHER")


def _configuration(pem: Pem) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(pem.key, pem.certificate)], pem.ca)


class _Fetcher:
    """Passes certificates to gRPC; called in its threads, before each handshake.

    Renewed ones at once, and the same ones again once they are old: gRPC then forgets its sessions,
    which a caller could resume for days after its certificate has expired.
    """

    def __init__(
        self, certificates: Certificates, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._certificates = certificates
        self._clock = clock
        self._given = certificates.generation
        self._given_s = clock()

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        generation, now_s = self._certificates.generation, self._clock()
        if generation == self._given and now_s < self._given_s + SESSIONS_S:
            return None
        self._given, self._given_s = generation, now_s
        return _configuration(self._certificates.pem)
