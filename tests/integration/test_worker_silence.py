"""A worker whose node falls silent while its handler runs: it keeps the job at another node."""

import os
import signal
import threading

from beanpole.client.blocking import Client
from beanpole.client.worker import Task, Worker
from tests.integration.support.nodes import Cluster
from tests.integration.support.waiting import wait_until

DONE_S = 60
TTR_S = 12


def test_a_job_is_kept_while_its_node_is_stopped(quick: Cluster) -> None:
    """One touch waited as long for the silent node as was left of the TTR."""
    number = quick.followers()[0]
    others = [node.beanstalk for node in quick.nodes if node is not quick.nodes[number]]
    worker = Worker([quick.nodes[number].beanstalk, *others], spread=False)
    tried: list[int] = []
    was_lost: list[bool] = []

    @worker.handles("silence")
    def handle(task: Task) -> None:
        tried.append(task.tried)
        os.kill(pid, signal.SIGSTOP)
        was_lost.append(task.lost.wait(1.5 * TTR_S))
        worker.stop()

    pid = quick.pid(number)
    with Client(others, use="silence", watch="silence") as client:
        client.put("x", ttr=TTR_S)
        thread = threading.Thread(target=worker.run, kwargs={"handle_signals": False})
        thread.start()
        try:
            wait_until(lambda: not thread.is_alive(), DONE_S)
        finally:
            os.kill(pid, signal.SIGCONT)
            worker.stop()
            thread.join(DONE_S)
    assert (tried, was_lost) == ([1], [False])
    assert worker.counts["deleted"] == 1
