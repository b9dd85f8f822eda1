"""A plugin of pytest that redirects connections to Redis' default port to REDIS_URL.

The suites construct their clients without an address, and must not be modified.
"""

import os
from typing import Any, Final
from urllib.parse import urlsplit

import redis

DEFAULT_PORT: Final = 6379
_TARGET: Final = urlsplit(os.environ["REDIS_URL"])
_begin: Final = redis.Connection.__init__


def _redirected(
    self: Any, host: str = "localhost", port: int = DEFAULT_PORT, **others: Any
) -> None:
    assert port == DEFAULT_PORT, "the suites name no other port"
    _begin(self, host=_TARGET.hostname, port=_TARGET.port, **others)


redis.Connection.__init__ = _redirected
