"""Stubs of pystalk, which the integration tests use as an unmodified client."""

from typing import Any

class Job:
    job_id: int
    job_data: bytes

class BeanstalkError(Exception):
    message: str

class BeanstalkConnectionError(BeanstalkError): ...

class BeanstalkClient:
    def __init__(
        self,
        host: str,
        port: int = 11300,
        socket_timeout: float | None = None,
        auto_decode: bool = False,
    ) -> None: ...
    # The library has no annotations beyond these; its tests read the replies as they come.
    def __getattr__(self, name: str) -> Any: ...
