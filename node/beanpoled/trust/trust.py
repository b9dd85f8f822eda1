"""What one node knows for trusting others: its secret, which proofs it takes, what it refused.

Proofs are made and compared in `proofs`. No socket is opened here.
"""

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

# From this machine version on, all members run a program that makes fresh proofs.
FRESH_PROOFS_SINCE: Final = 4


class Trust:
    """Shared by the peer link, the gRPC server and its client.

    Attributes:
        secret: the nodes' own.
        active_version: returns the machine version that the cluster works at.
        refusals: callers and links without the right proof, by reason.
        old_proofs: how many proofs of releases up to 0.3.0 were taken.
        handshakes: of TLS.
        of_clients: what clients are served with; None if they do not come by TLS.
        of_peers: what this node shows to other nodes; None if they do not use TLS.
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
            node: this member's.
            secret: the shared one; empty for none.
            log: where to say that an old proof was taken.
            takes_old: whether proofs of releases up to 0.3.0 are taken until the upgrade has ended.
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
        self._told: set[str] = set()  # names of members: nine at most

    def takes_old(self) -> bool:
        """Whether a proof of releases up to 0.3.0 is taken, or given, now."""
        return self._takes_old and self.active_version() < FRESH_PROOFS_SINCE

    def took_old(self, where: str) -> None:
        """An old proof was taken; say so once for each place, a fixed word or a member's name."""
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
        """A proof was refused."""
        self.refusals[reason] += 1

    def refresh(self) -> list[str]:
        """Read the files of certificates again if they changed; connections that are up stay.

        Returns:
            What was logged of that.
        """
        told: list[str] = []
        for certificates in (self.of_clients, self.of_peers):
            words = None if certificates is None else certificates.refresh()
            if words is not None:
                self._log(words, WARNING)
                told.append(words)
        return told


def trust_of(config: NodeConfig, log: Log) -> Trust:
    """Make what the configuration of a node says.

    Raises:
        ConfigurationError: a certificate cannot be used.
    """
    takes_old = config.peer_old_proofs == "auto"
    names = (config.cluster, config.node_id, config.peer_secret)
    trust = Trust(*names, log, takes_old)
    trust.handshakes.set_limits(config)
    trust.of_clients, trust.of_peers = of_clients(config), of_peers(config)
    return trust
