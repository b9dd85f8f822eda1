"""The sources of the metrics page: the largest queues, and this process."""

import os
import random
import sys
import time
from contextlib import ExitStack
from unittest.mock import Mock

import pytest

from beanpole.core.jobs import display_names
from beanpole.core.jobs.job import Tube
from beanpole.core.jobs.spaces import SPACES, Space
from beanpoled.http import process
from beanpoled.largest_queues import LargestQueues
from beanpoled.node_view import LocalNodeView
from beanpoled.rpc.server import describe
from beanpoled.view import QUEUE_NAME_MAX_BYTES, QUEUES_MAX
from tests.unit.beanpoled.fakes import trust_of
from tests.unit.node.stage import Stage

RESIZE = display_names.parsed("gearman:resize")
FILES = 200
SPACE = Space(min(SPACES), SPACES[min(SPACES)])


def tubes(counts: dict[bytes, int]) -> dict[bytes, Tube]:
    found = {}
    for number, (name, count) in enumerate(counts.items()):
        found[name] = Tube(name, number, SPACE)
        found[name].ready_count = count
    return found


def test_the_largest_are_found_a_piece_at_a_time() -> None:
    seed = random.SystemRandom().randrange(2**32)
    sys.stdout.write(f"seed {seed}\n")
    chance = random.Random(seed)
    counts = {
        b"t%d" % number: count for number, count in enumerate(chance.sample(range(1, 9999), 950))
    }
    all_of_them = tubes(counts)
    largest = LargestQueues(look_max=100)
    for _ in range(10):
        found = largest.look(all_of_them)
        assert len(found) == QUEUES_MAX
    wanted = sorted(counts.values(), reverse=True)[:QUEUES_MAX]
    assert [tube.ready_count for tube in found] == wanted
    # A queue that has grown is found in the next round; a deleted queue is left out at once.
    smallest = min(counts, key=counts.__getitem__)
    all_of_them[smallest].reserved_count = 100_000
    del all_of_them[found[0].name]
    assert found[0] not in largest.look(all_of_them)
    for _ in range(10):
        found = largest.look(all_of_them)
    assert found[0] is all_of_them[smallest]


def test_queues_without_jobs_and_with_long_names_have_no_figures() -> None:
    long = b"x" * (QUEUE_NAME_MAX_BYTES + 1)
    node = Stage().node
    node.context.machine.queue.tubes.update(tubes({b"empty": 0, long: 5, RESIZE: 3, b"mail": 1}))
    found = LocalNodeView(node, trust_of()).metrics().queues
    assert [(queue.protocol, queue.name, queue.ready) for queue in found] == [
        ("gearman", "resize", 3),
        ("beanstalk", "mail", 1),
    ]


def test_a_description_of_a_node_computes_no_figures_of_queues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take 20 ms of a large cluster's node, and strangers may ask for its status."""
    node = Stage().node
    node.context.machine.queue.tubes.update(tubes({b"mail": 1}))
    view = LocalNodeView(node, trust_of())
    assert len(view.metrics().queues) == 1
    looked = Mock(side_effect=AssertionError("it computes figures of a queue"))
    monkeypatch.setattr(node.events.latencies, "of", looked)
    monkeypatch.setattr(LargestQueues, "look", looked)
    assert view.metrics(with_queues=False).queues == []
    assert describe(view).protocols
    assert not looked.called


def test_a_process_knows_itself() -> None:
    before = process.read()
    with ExitStack() as files:
        for _ in range(FILES):
            files.enter_context(open(os.devnull))
        now = process.read()
    # The sockets of earlier tests may be closed meanwhile: by the threads of gRPC, or as garbage.
    assert abs(now.open_fds - before.open_fds - FILES) < FILES / 2
    assert now.open_fds <= now.max_fds
    assert now.cpu_seconds_total >= before.cpu_seconds_total > 0
    assert 1 << 20 < now.resident_memory_bytes < now.virtual_memory_bytes
    assert 0 < time.time() - now.start_time_seconds < 24 * 3600
