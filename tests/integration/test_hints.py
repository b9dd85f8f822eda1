"""A command with the wrong address of a real node names the protocol spoken there."""

from functools import partial

import pytest

from beanpole.client.spoken import spoken_at
from tests.integration.support.nodes import Cluster
from tests.integration.support.program import ran
from tests.integration.support.waiting import wait_until

TIMEOUT_S = 60.0
pytestmark = pytest.mark.usefixtures("patient_look")
KINDS = {"workq": "Workq", "gearman": "Gearman", "qless": "qless", "beanstalk": "beanstalk"}


def test_what_each_port_speaks(shared: Cluster) -> None:
    node = shared.nodes[0]
    for protocol, spoken in KINDS.items():
        address = node.speaks(protocol)
        # Some ports open with a machine version, which is raised once all nodes are up.
        wait_until(partial(spoken_at, address), TIMEOUT_S, protocol)
        assert spoken_at(address) == spoken
    assert spoken_at(node.grpc) == "gRPC"
    assert spoken_at(node.http) == "HTTP"
    assert spoken_at(node.peer) == "with other nodes only"
    assert spoken_at("127.0.0.1:1") == ""


@pytest.mark.parametrize(
    ("line", "given", "spoken", "needs", "setting"),
    [
        (["put", "x"], "grpc", "gRPC", "beanstalk", "listen, 11300"),
        (["status"], "peer", "with other nodes only", "gRPC", "grpc_listen, 11320"),
        (["status"], "beanstalk", "beanstalk", "gRPC", "grpc_listen, 11320"),
        (["alias", "list"], "http", "HTTP", "gRPC", "grpc_listen, 11320"),
    ],
)
def test_a_wrong_kind_of_address_gets_a_hint(
    shared: Cluster, line: list[str], given: str, spoken: str, needs: str, setting: str
) -> None:
    address = getattr(shared.nodes[0], given)
    done = ran(*line, "--addr", address)
    assert done.status == 3
    assert done.errors.splitlines()[-1] == (
        f"hint: {address} speaks {spoken}, and this command needs the address at which a node "
        f"speaks {needs}: its setting {setting} by default"
    )


def test_a_node_that_is_away_gets_none(shared: Cluster) -> None:
    done = ran("status", "--addr", "127.0.0.1:1")
    assert done.status == 3 and "hint" not in done.errors
