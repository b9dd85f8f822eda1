"""The common part of backends that run the tests' own `Cluster` on the loopback interface."""

from pathlib import Path

from chaos.backends.local import LocalNodes
from tests.integration.support.nodes import Cluster, http_get


class LoopbackNodes(LocalNodes):
    """Subclasses create the cluster, and the links between its nodes."""

    cluster: Cluster

    def name(self, number: int) -> str:
        return self.cluster.nodes[number].id

    def data(self, number: int) -> Path:
        return self.cluster.nodes[number].directory / "data"

    def get(self, number: int, page: str) -> tuple[int, str]:
        """Return the status and text of a page; ConnectionError if the node does not answer."""
        return http_get(self.cluster.nodes[number].http, page)
