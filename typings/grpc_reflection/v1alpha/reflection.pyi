from collections.abc import Iterable
from typing import Any

SERVICE_NAME: str

def enable_server_reflection(
    service_names: Iterable[str], server: Any, pool: Any = None
) -> None: ...
