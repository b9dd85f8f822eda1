"""Tasks that serve beside the node and are kept by a part of it: their errors are seen at once.

asyncio reports the error of a task when the task is collected, and never while the task is kept:
a port would stay open without accepting, or a member would not be dialed any more.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


def watched(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run a coroutine; its error goes to the exception handler of the loop."""
    task = loop.create_task(work)
    task.add_done_callback(_look)
    return task


def _look(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.result()  # the handler is called for a callback that raises
