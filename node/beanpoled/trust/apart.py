"""Work that the file system may hold for hours, in a thread that no end of the process waits for.

`asyncio.to_thread` has a bounded number of threads, and a stop waits for all of them.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from beanpole.storage.threads import start_daemon

_Result = TypeVar("_Result")


async def apart(name: str, work: Callable[[], _Result]) -> _Result:
    """Call `work` in a thread of its own, and return what it returns or raise what it raises.

    The caller bounds how many of them there are at once. If it is cancelled, the work goes on and
    its outcome is dropped.

    Raises:
        OSError: no thread can be started.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def tell(result: _Result | None, error: Exception | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # of `work`, which has succeeded

    def run() -> None:
        result = failure = None
        try:
            result = work()
        except Exception as error:
            failure = error.with_traceback(None)  # its frames have it as a local
        with suppress(RuntimeError):  # the loop may have been closed meanwhile
            loop.call_soon_threadsafe(tell, result, failure)

    start_daemon(run, name)
    return await done
