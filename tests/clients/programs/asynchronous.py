"""The program that uses aiogear."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiogear import Client, Worker
from aiogear.packet import Type

from tests.clients.programs.talk import SIMPLE, Arguments, arguments, tell

POLL_S = 0.01


async def work(place: Arguments) -> None:
    """Serve the functions of a worker forever."""
    loop = asyncio.get_running_loop()

    def simple(act: Callable[[str], str]) -> Callable[[Any], str]:
        return lambda job: act(job.workload)

    async def parts(job: Any) -> str:
        worker.send(Type.WORK_DATA, job.handle, "first")
        worker.send(Type.WORK_WARNING, job.handle, "careful")
        worker.send(Type.WORK_STATUS, job.handle, "1", "2")
        worker.send(Type.WORK_DATA, job.handle, "second")
        return "parts:" + str(job.workload)

    async def gate(job: Any) -> str:
        worker.send(Type.WORK_STATUS, job.handle, "1", "4")
        opened = loop.create_future()

        def look() -> None:
            if Path(job.workload).exists():
                opened.set_result("opened")
            else:
                loop.call_later(POLL_S, look)

        look()
        return str(await opened)

    # The library's worker can only fail by an exception.
    functions: dict[str, Callable[[Any], Any]] = {
        name: simple(act) for name, act in SIMPLE.items() if name != "fail"
    }
    functions |= {"parts": parts, "wait": gate}
    worker = Worker(
        *((function, f"{place.last}-{name}") for name, function in functions.items()), loop=loop
    )
    await loop.create_connection(lambda: worker, *place.first)
    worker.set_client_id(place.last)
    await worker.main_task


async def ask(place: Arguments) -> None:
    """Make one request of a client."""
    loop = asyncio.get_running_loop()
    client = Client(loop=loop)
    await loop.create_connection(lambda: client, *place.first)
    request = place.request()
    if request["do"] == "status":
        status = await client.get_status(request["handle"])
        tell("status", status.known, status.running)
        tell("progress", status.numerator, status.denominator)
        return
    await client.option_req("exceptions")

    def listen(kind: Type, act: Callable[[Any], None]) -> None:
        """The library calls back once for each registration."""

        def called(_: Type, found: Any) -> None:
            act(found)
            listen(kind, act)

        client.do_register(called, kind)

    listen(Type.WORK_DATA, lambda found: tell("data", found.data))
    listen(Type.WORK_WARNING, lambda found: tell("warning", found.split(b"\0", 1)[1].decode()))
    listen(Type.WORK_STATUS, lambda found: tell("progress", *map(int, found.split(b"\0")[1:])))
    kind = {"low": "_low", "normal": "", "high": "_high"}[request["priority"]]
    background = request["do"] == "background"
    submit = getattr(client, "submit_job" + kind + ("_bg" if background else ""))
    unique = request["unique"]
    created = await submit(request["function"], request["payload"], uuid=unique)
    tell("created", created.handle)
    if not background:
        end = await client.wait_job(created.handle)
        if hasattr(end, "result"):
            tell("complete", end.result)
        elif hasattr(end, "exception"):
            tell("exception", end.exception)
        else:
            tell("failed")


def main() -> None:
    """Run the role that the command line names."""
    place = arguments()
    asyncio.run(work(place) if place.role == "worker" else ask(place))


if __name__ == "__main__":
    main()
