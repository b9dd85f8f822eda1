"""Addresses that are almost right."""

import pytest

from beanpole.client import blocking


@pytest.mark.parametrize("port", [70000, 65536, 0, -1])
def test_a_port_out_of_range_is_refused(port: int) -> None:
    with pytest.raises(ValueError, match=f"the port {port} is not from 1 to 65535"):
        blocking.Client(("127.0.0.1", port), patience_s=0)


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "tls:127.0.0.1:23000"])
def test_a_mistyped_address_has_a_hint(address: str) -> None:
    with pytest.raises(blocking.NoNodeError, match="as it is not HOST:PORT"):
        blocking.Client(address, patience_s=0)


def test_a_path_has_none() -> None:
    with pytest.raises(blocking.NoNodeError) as caught:
        blocking.Client("/nowhere/a:b", patience_s=0)
    assert "HOST:PORT" not in str(caught.value)
