from typing import Any

import grpc
import grpc.aio

from . import health_pb2

class HealthStub:
    def __init__(self, channel: grpc.aio.Channel) -> None: ...
    Check: grpc.aio.UnaryUnaryMultiCallable[
        health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
    ]

class HealthServicer: ...

def add_HealthServicer_to_server(servicer: HealthServicer, server: Any) -> None: ...
