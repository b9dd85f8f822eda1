"""Make unit tests independent of their surroundings: limits of time, and a user's settings."""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from tests.unit.golden.script import SETTING

# By default an example that takes 0.2 s fails its test, and so do examples that are made slowly.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

# The machine may be slow and busy.
LONG_S: Final = 60.0
# Limits of nodes and commands for an answer on the same machine, a second or a few. No test waits
# until such a limit has passed: a member that is down refuses its connection at once.
LIMITS: Final = (
    "beanpole.client.events.RANGE_TIMEOUT_S",
    "beanpole.client.events.READ_TIMEOUT_S",
    "beanpole.client.spoken.TIMEOUT_S",
    "beanpoled.audit.log.CLOSE_TIMEOUT_S",
    "beanpoled.audit.log.FLUSH_TIMEOUT_S",
    "beanpoled.cli.doctor.CALL_TIMEOUT_S",
    "beanpoled.cli.node.CALL_TIMEOUT_S",
    "beanpoled.cli.settings.CALL_TIMEOUT_S",
    "beanpoled.cli.status.STATUS_TIMEOUT_S",
    "beanpoled.cli.top.STATUS_TIMEOUT_S",
    "beanpoled.cli.up.POLL_TIMEOUT_S",
    "beanpoled.cli.up.STOP_TIMEOUT_S",
    "beanpoled.rpc.admin.PEER_STATUS_TIMEOUT_S",
    "beanpoled.rpc.node_admin.READ_TIMEOUT_S",
    "beanpoled.rpc.oldest.KEPT_S",
)


@pytest.fixture(autouse=True, scope="session")
def no_settings() -> Iterator[None]:
    """Hide the cluster, the token and the terminal of the user that runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("BEANPOLE_") and name != SETTING:
                patch.delenv(name)
        patch.setenv("TERM", "xterm")
        yield


@pytest.fixture(autouse=True, scope="session")
def long_limits() -> Iterator[None]:
    """Make the limits long for all tests of this process."""
    with pytest.MonkeyPatch.context() as patch:
        for limit in LIMITS:
            # Only what these tests use: to import all takes as long as many of them.
            if "grpc" in sys.modules or limit.rpartition(".")[0] in sys.modules:
                patch.setattr(limit, LONG_S)
        if bringing := sys.modules.get("beanpoled.rpc.bringing"):
            patch.setattr(bringing.Bringer.brought, "__defaults__", (LONG_S,))
        yield


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Collect no cycles, as nodes do for objects that have become old."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
