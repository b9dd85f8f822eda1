"""The program that uses pygearman or python3-gearman, two forks with the same interface.

The only difference is that the second takes text where the first takes bytes.
"""

import os
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from tests.clients.programs.talk import (
    SIMPLE,
    Arguments,
    Failed,
    Thrown,
    arguments,
    tell,
    wait_for_gate,
)

LIBRARY: Final = os.environ.get("PYGEARMAN_MODULE", "gearman")
TEXT: Final = LIBRARY == "python3_gearman"
TIMEOUT_S: Final = 60.0


def own(text: str) -> Any:
    """Return text in the library's type, str or bytes."""
    return text if TEXT else text.encode()


def plain(data: Any) -> str:
    """Return data of the library as text."""
    return data if isinstance(data, str) else bytes(data).decode()


def work(library: types.ModuleType, place: Arguments) -> None:
    """Serve the functions of a worker forever."""
    worker = library.GearmanWorker(place.servers)
    worker.set_client_id(own(place.last))

    def simple(act: Callable[[str], str]) -> Callable[[Any, Any], Any]:
        return lambda _, job: own(act(plain(job.data)))

    def parts(_: Any, job: Any) -> Any:
        worker.send_job_data(job, own("first"))
        worker.send_job_warning(job, own("careful"))
        worker.send_job_status(job, 1, 2)
        worker.send_job_data(job, own("second"))
        return own("parts:" + plain(job.data))

    def gate(_: Any, job: Any) -> Any:
        worker.send_job_status(job, 1, 4)
        return own(wait_for_gate(plain(job.data)))

    def failed(job: Any, info: Any) -> bool:
        if isinstance(info[1], Thrown):
            worker.send_job_exception(job, own(str(info[1])))
        else:
            assert isinstance(info[1], Failed), info
            worker.send_job_failure(job)
        return False

    worker.on_job_exception = failed
    functions = {name: simple(act) for name, act in SIMPLE.items()}
    for name, function in {**functions, "parts": parts, "wait": gate}.items():
        worker.register_task(own(f"{place.last}-{name}"), function)
    worker.work()


def ask(library: types.ModuleType, place: Arguments) -> None:
    """Make one request of a client."""
    client = library.GearmanClient(place.servers)
    request = place.request()
    if request["do"] == "status":
        ask_status(library, client, request["handle"])
        return
    priorities = {
        "low": library.PRIORITY_LOW,
        "normal": library.PRIORITY_NONE,
        "high": library.PRIORITY_HIGH,
    }
    background = request["do"] == "background"
    unique = request["unique"]
    submitted = client.submit_job(
        own(request["function"]),
        own(request["payload"]),
        unique=unique and own(unique),
        priority=priorities[request["priority"]],
        background=background,
        wait_until_complete=False,
        poll_timeout=TIMEOUT_S,
    )
    tell("created", plain(submitted.job.handle))
    if background:
        return
    client.wait_until_jobs_completed([submitted], poll_timeout=TIMEOUT_S)
    for data in submitted.data_updates:
        tell("data", plain(data))
    for warning in submitted.warning_updates:
        tell("warning", plain(warning))
    if submitted.status:
        tell("progress", submitted.status["numerator"], submitted.status["denominator"])
    if submitted.exception is not None:
        tell("exception", plain(submitted.exception))
    if submitted.state == library.JOB_COMPLETE:
        tell("complete", plain(submitted.result))
    if submitted.state == library.JOB_FAILED:
        tell("failed")


def ask_status(library: types.ModuleType, client: Any, handle: str) -> None:
    """Ask for the status of a job that another client submitted."""
    job_module = import_module(f"{LIBRARY}.job")
    connection = client.establish_connection(client.connection_list[0])
    job = job_module.GearmanJob(connection, own(handle), own(""), own(""), own(""))
    request = job_module.GearmanJobRequest(job)
    request.state = library.JOB_CREATED
    status = client.get_job_status(request, poll_timeout=TIMEOUT_S).status
    tell("status", status["known"], status["running"])
    tell("progress", status["numerator"], status["denominator"])


def main() -> None:
    """Run the role that the command line names."""
    library, place = import_module(LIBRARY), arguments()
    if place.role == "worker":
        work(library, place)
    else:
        ask(library, place)


if __name__ == "__main__":
    main()
