"""The words of a refusal are printed without the control characters in them.

A queue of Gearman may have an ESC in its name, which a refusal quotes, and any server may answer at
an address. The server here is a double that refuses every call.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from beanpoled.cli import main

WORDS = "no \x1b[2J\x1b]0;owned\x07 such thing"
STREAMS = ("/Change", "/ReadEvents")


class Refusing(grpc.GenericRpcHandler):
    """Answers each call with a code and WORDS."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def service(self, handler_call_details: Any) -> Any:
        if handler_call_details.method.endswith(STREAMS):
            return grpc.unary_stream_rpc_method_handler(self._refuse)
        return grpc.unary_unary_rpc_method_handler(self._refuse)

    def _refuse(self, request: Any, context: grpc.ServicerContext) -> Any:
        context.abort(self._code, WORDS)


@pytest.fixture(params=[grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((Refusing(request.param),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.mark.parametrize(
    "words",
    [
        "alias list",
        "cluster finalize",
        "cluster leader --transfer",
        "job kick 7",
        "job list",
        "job show 7",
        "node audit --node n0",
        "node connections --node n0",
        "node disconnect n0/1",
        "policy list",
        "queue list",
        "queue pause q --for 5",
        "snapshot",
        "user list",
    ],
)
def test_a_refusal_has_no_escapes(
    words: str, address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), "--addr", address]) >= 1
    told = "".join(capsys.readouterr())
    assert "\x1b" not in told and "\x07" not in told
    assert "such thing" in told
