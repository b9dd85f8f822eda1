"""The ports that tests give to servers."""

from tests.integration.support.ports import BLOCK, BLOCKS, free_block, free_port


def test_no_single_server_gets_a_port_of_a_node_that_is_starting() -> None:
    """A row of short tests of beanstalkd once took the port of a node before it listened."""
    block = free_block()
    ports = [free_port() for _ in range(2 * BLOCKS)]
    assert len(set(ports)) == len(ports)
    assert not set(ports) & set(range(block, block + BLOCK))
