"""A worker whose node falls silent while its handler runs: it keeps the job at another node.

Without the bounds of a worker one command waits as long for the silent node as is left of the TTR.
"""

import os
import signal
import threading

import pytest

from beanpole.client.blocking import Client, TimedOutError
from beanpole.client.worker import Task, Worker
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

DONE_S = 60
TTR_S = 12


@pytest.mark.parametrize("work_s", [1.5 * TTR_S, 0], ids=["touched", "only deleted"])
def test_a_job_is_kept_while_its_node_is_stopped(quick: Cluster, work_s: float) -> None:
    number = quick.followers()[0]
    others = [node.beanstalk for node in quick.nodes if node is not quick.nodes[number]]
    worker = Worker([quick.nodes[number].beanstalk, *others], spread=False)
    tried: list[int] = []
    was_lost: list[bool] = []

    @worker.handles("silence")
    def handle(task: Task) -> None:
        tried.append(task.tried)
        os.kill(pid, signal.SIGSTOP)
        was_lost.append(task.lost.wait(work_s))
        worker.stop()

    pid = quick.pid(number)
    with Client(others, use="silence", watch="silence") as client:
        client.put("x", ttr=TTR_S)
        thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
        thread.start()
        try:
            wait_until(lambda: tried, DONE_S)
            with pytest.raises(TimedOutError):  # no other worker gets it
                client.reserve(int(1.5 * TTR_S))
            wait_until(lambda: not thread.is_alive(), DONE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
            worker.stop()
            thread.join(DONE_S)
    assert (tried, was_lost) == ([1], [False])
    assert worker.counts["deleted"] == 1
