"""Addresses of servers, and the names of clients' hosts by the addresses of sockets and gRPC."""

import pytest

from beanpole.addresses import UNIX, host_name, host_of_peer, network_of_host, split_address
from beanpole.constants import HOST_NAME_MAX_BYTES


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("127.0.0.1", b"127.0.0.1"),
        ("2001:db8::1", b"2001:db8::1"),
        ("fe80::1%eth0", b"fe80::1%eth0"),
        ("::ffff:10.0.0.7", b"10.0.0.7"),
        ("::FFFF:10.0.0.7", b"10.0.0.7"),
        ("::ffff:a00:7", b"::ffff:a00:7"),
        (UNIX, b"unix"),
        ("", b""),
        ("x" * 100, b"x" * HOST_NAME_MAX_BYTES),
    ],
)
def test_a_host_is_named_by_its_address(address: str, name: bytes) -> None:
    assert host_name(address) == name


@pytest.mark.parametrize(
    ("host", "network"),
    [
        (b"10.0.0.7", b"10.0.0.7"),
        (b"2001:db8:1:2:3:4:5:6", bytes.fromhex("20010db800010002")),
        (b"2001:db8:1:2::9", bytes.fromhex("20010db800010002")),
        (b"fe80::1%eth0", bytes.fromhex("fe80000000000000")),
        (b"unix", b"unix"),
        (b"", b""),
    ],
)
def test_limits_count_a_network_of_ipv6_as_one_address(host: bytes, network: bytes) -> None:
    assert network_of_host(host) == network


@pytest.mark.parametrize(
    ("peer", "name"),
    [
        ("ipv4:127.0.0.1:40312", b"127.0.0.1"),
        ("ipv6:[::1]:40312", b"::1"),
        ("ipv6:%5B::1%5D:40312", b"::1"),
        ("ipv6:%5Bfe80::1%25eth0%5D:40312", b"fe80::1%eth0"),
        ("ipv6:[::ffff:10.0.0.7]:1", b"10.0.0.7"),
        ("unix:", b"unix"),
        ("unix:/run/beanpole/socket", b"unix"),
        ("vsock:3:1", b""),
        ("", b""),
    ],
)
def test_the_peer_of_a_call_is_the_same_host_without_its_port(peer: str, name: bytes) -> None:
    assert host_of_peer(peer) == name


@pytest.mark.parametrize("host", ["a", "a.b", "a.b.", "a" * 63 + ".b", "10.0.0.7", "a_b-c"])
def test_an_address_has_a_host_and_a_port(host: str) -> None:
    assert split_address(f"{host}:7000") == (host, 7000)
    assert split_address("[fe80::1%eth0]:7000") == ("fe80::1%eth0", 7000)


@pytest.mark.parametrize("host", ["a..b", ".a", ".", "a..", "a" * 64, "a." + "b" * 64])
def test_a_host_that_no_look_up_takes_is_refused(host: str) -> None:
    """A node never dialed such a member, and said that it had not answered yet."""
    with pytest.raises(ValueError, match="HOST:PORT"):
        split_address(f"{host}:7000")
