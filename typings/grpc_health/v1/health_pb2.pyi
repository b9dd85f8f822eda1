from typing import ClassVar

from google.protobuf import descriptor, message

DESCRIPTOR: descriptor.FileDescriptor

class HealthCheckRequest(message.Message):
    service: str
    def __init__(self, service: str | None = ...) -> None: ...

class HealthCheckResponse(message.Message):
    class ServingStatus(int):
        @classmethod
        def Name(cls, number: int) -> str: ...

    UNKNOWN: ClassVar[ServingStatus]
    SERVING: ClassVar[ServingStatus]
    NOT_SERVING: ClassVar[ServingStatus]
    SERVICE_UNKNOWN: ClassVar[ServingStatus]
    status: ServingStatus
    def __init__(self, status: ServingStatus | str | None = ...) -> None: ...
