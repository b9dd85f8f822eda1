"""gRPC resolves names as the system does, whichever module of ours a program imports first."""

import os
import subprocess
import sys

import pytest

VARIABLE = "GRPC_DNS_RESOLVER"
# In a trace for each name that gRPC's own resolver looks up.
OWN = "c-ares resolver"
CALL = """
import grpc
with grpc.insecure_channel("localhost:1") as channel:
    try:
        channel.unary_unary("/a/b")(b"", timeout=20)
    except grpc.RpcError as error:
        print(error.code().name)
"""


def trace(module: str, **variables: str) -> str:
    """Return gRPC's trace of a call to a name, in a program that imports this module first."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    environment |= {"GRPC_TRACE": "cares_resolver", "GRPC_VERBOSITY": "debug"}
    done = subprocess.run(
        [sys.executable, "-c", f"import {module}\n{CALL}"],
        env=environment | variables,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "UNAVAILABLE\n", "the name was resolved, and nothing listens there"
    return done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "beanpole.client.rpc",
        "beanpole.pb.queue_pb2_grpc",
        "beanpoled.cli",
        "beanpoled.main",
        "beanpoled.rpc.credentials",  # imports grpc before anything of ours
    ],
)
def test_names_are_resolved_by_the_system(module: str) -> None:
    """gRPC's own resolver waits for a DNS server that is silent although the hosts file answers."""
    assert OWN not in trace(module)


def test_the_environment_chooses_another_resolver() -> None:
    """So the trace shows which one is used."""
    assert OWN in trace("beanpoled.main", **{VARIABLE: "ares"})


@pytest.mark.parametrize("given", [{}, {VARIABLE: "ares"}])
def test_programs_that_commands_start_have_the_variable_of_the_user(given: dict[str, str]) -> None:
    """Such as those of `beanpole work`, which may use gRPC for something else."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    program = f"import os, beanpoled.cli; print(os.environ.get({VARIABLE!r}))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, env=environment | given, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == given.get(VARIABLE, "None")
