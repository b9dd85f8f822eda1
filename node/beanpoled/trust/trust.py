"""The state of a node's trust: its secret, the proofs that it accepts, its refusals.

Proofs are made and compared in `proofs`. No socket is opened here.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Final

from beanpoled.config.node import NodeConfig
from beanpoled.config.tls import (
    FAILED_HANDSHAKES_DEFAULT,
    HANDSHAKES_MAX_DEFAULT,
    HANDSHAKES_PER_ADDRESS_MAX_DEFAULT,
)
from beanpoled.host.seam import WARNING, Log
from beanpoled.trust.certificates import Certificates, of_clients, of_peers
from beanpoled.trust.handshakes import Handshakes
from beanpoled.trust.shared_secret import SharedSecret
from beanpoled.trust.validity import next_end_s

# From this machine version on, all members run a program that makes fresh proofs.
FRESH_PROOFS_SINCE: Final = 4


class Trust:
    """Shared by the peer link, the gRPC server and its client.

    Attributes:
        secret: shared by the nodes.
        active_version: returns the machine version of the cluster.
        refusals: callers and links without a valid proof, by reason.
        old_proofs: the number of accepted proofs of releases up to 0.3.0.
        handshakes: of TLS.
        of_clients: the certificates for clients; None if clients do not use TLS.
        of_peers: the certificates for other nodes; None if nodes do not use TLS.
    """

    def __init__(
        self,
        cluster: str,
        node: str,
        secret: str,
        log: Log,
        takes_old: bool = True,
    ) -> None:
        """Begin, with the default limits of handshakes.

        Args:
            cluster: its name.
            node: this member's name.
            secret: the shared secret; empty for none.
            log: receives the warnings about accepted old proofs.
            takes_old: whether proofs of releases up to 0.3.0 are accepted until the upgrade has
                ended.
        """
        self.cluster = cluster
        self.node = node
        self.secret = SharedSecret(secret)
        self.active_version: Callable[[], int] = lambda: 0
        self.refusals: Counter[str] = Counter()
        self.old_proofs = 0
        self.handshakes = Handshakes(
            HANDSHAKES_MAX_DEFAULT,
            HANDSHAKES_PER_ADDRESS_MAX_DEFAULT,
            FAILED_HANDSHAKES_DEFAULT,
            log,
        )
        self.of_clients: Certificates | None = None
        self.of_peers: Certificates | None = None
        self._log = log
        self._takes_old = takes_old
        self._told: set[str] = set()  # logged places; nine names of members at most

    def takes_old(self) -> bool:
        """Whether a proof of releases up to 0.3.0 is accepted, or sent, now."""
        return self._takes_old and self.active_version() < FRESH_PROOFS_SINCE

    def took_old(self, where: str) -> None:
        """Count an accepted old proof; log it once per place, a fixed word or a member's name."""
        if not self.secret:
            return
        self.old_proofs += 1
        if where not in self._told:
            self._told.add(where)
            self._log(
                f"{where} proves its peer_secret as releases up to 0.3.0 do; this ends with the "
                "upgrade (peer_old_proofs)",
                WARNING,
            )

    def refused(self, reason: str) -> None:
        """Count a refused proof."""
        self.refusals[reason] += 1

    def refresh(self, is_asked: bool = False) -> list[str]:
        """Read the certificate files again if they changed; established connections stay.

        Args:
            is_asked: see `Certificates.refresh`.

        Returns:
            The logged lines of files that are in use now.
        """
        told: list[str] = []
        for certificates in self.certificates():
            words = certificates.refresh(is_asked)
            if words is not None:
                self._log(words, WARNING)
                if not certificates.refusal:
                    told.append(words)
        return told

    async def end_revoked(self) -> None:
        """End connections whose certificates are on a list that was not applied yet."""
        for certificates in self.certificates():
            if certificates.standing is not None:
                words = await certificates.standing.apply(certificates.generation)
                if words is not None:
                    self._log(words, WARNING)

    def refused_files(self) -> dict[str, str]:
        """Return why certificate files, as they are now, are not in use, by prefix of settings."""
        return {one.setting: one.refusal for one in self.certificates() if one.refusal}

    def time_faults(self) -> list[str]:
        """Return which certificate files in use have expired, or are not valid yet."""
        return [words for one in self.certificates() for words in one.time_faults()]

    def list_faults(self) -> list[str]:
        """Return which lists of revoked certificates in use are of no CA of clients."""
        return [words for one in self.certificates() if (words := one.list_fault())]

    def files_end_s(self, now_s: float) -> dict[str, float]:
        """Return when each file of TLS that is in use ends; files that never end are left out.

        Args:
            now_s: wall clock.

        Returns:
            The next end in a file, in seconds since 1970, by the setting that names the file.
        """
        ends = {name: ends_s for one in self.certificates() for name, ends_s in one.ends_s.items()}
        found = {name: next_end_s(ends_s, now_s) for name, ends_s in ends.items() if ends_s}
        return {name: end_s for name, end_s in found.items() if end_s < math.inf}

    def certificates(self) -> list[Certificates]:
        """Return the certificates that TLS uses here."""
        return [one for one in (self.of_clients, self.of_peers) if one is not None]


def trust_of(config: NodeConfig, log: Log) -> Trust:
    """Build the trust state of a node from its configuration.

    Raises:
        ConfigurationError: a certificate cannot be used.
    """
    takes_old = config.peer_old_proofs == "auto"
    names = (config.cluster, config.node_id, config.peer_secret)
    trust = Trust(*names, log, takes_old)
    trust.handshakes.set_limits(config)
    trust.of_clients, trust.of_peers = of_clients(config), of_peers(config, config.node_id)
    return trust
