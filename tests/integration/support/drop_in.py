"""The asyncio client with blocking methods, so that one test covers both of Beanpole's clients.

The actions of the clients do not belong here.
"""

import asyncio
from collections.abc import Callable
from inspect import iscoroutine
from types import ModuleType, TracebackType
from typing import Any

from beanpole.client import aio, blocking

MODULES = (blocking, aio)


class Blocked:
    """An asyncio client whose loop runs only while a method is called."""

    def __init__(self, client: aio.Client[Any]) -> None:
        self.client = client
        self.loop = asyncio.new_event_loop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            result = found(*arguments, **named)
            return self.loop.run_until_complete(result) if iscoroutine(result) else result

        return call

    def __enter__(self) -> "Blocked":
        try:
            self.loop.run_until_complete(self.client.connect())
        except BaseException:
            self.loop.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.loop.run_until_complete(self.client.close())
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()


def maker(module: ModuleType) -> Callable[..., Any]:
    """Return a factory of a module's clients, whose methods block."""
    if module is not aio:
        return module.Client  # type: ignore[no-any-return]
    return lambda *arguments, **named: Blocked(aio.Client(*arguments, **named))
