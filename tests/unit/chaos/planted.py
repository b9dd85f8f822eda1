"""Random faults planted into a history of real nodes, with the job in which each must be found.

`tests/fixtures/soak-history.jsonl.xz` is the beginning of a soak; the commands in flight at its end
have no reply.
"""

import json
import lzma
import random
from pathlib import Path
from typing import Final

from chaos import record
from chaos.record import Op

History = list[list[Op]]
FIXTURE: Final = Path(__file__).parents[2] / "fixtures" / "soak-history.jsonl.xz"
# The fixture has more jobs than this.
JOBS_MIN: Final = 500
SEEDS: Final = 10


def recorded() -> History:
    """Return the commands of each client."""
    clients: dict[int, list[Op]] = {}
    with lzma.open(FIXTURE, "rt") as file:
        for line in file:
            op = Op(*json.loads(line))
            clients.setdefault(op.client, []).append(op)
    return list(clients.values())


def _any(clients: History, seed: int, kind: str, outcome: str) -> Op:
    """Choose a command of this kind with this reply."""
    fitting = [op for ops in clients for op in ops if (op.kind, op.outcome) == (kind, outcome)]
    return random.Random(seed).choice(fitting)


def hide(clients: History, seed: int) -> tuple[History, int]:
    """Add a client that does not find a job between its put and its next command."""
    put = _any(clients, seed, record.PUT, "INSERTED")
    about = [op for ops in clients for op in ops if op.job == put.job and op.kind != record.PUT]
    end_s = min((op.sent_s for op in about), default=put.done_s + 1)
    at_s = (put.done_s + max(end_s, put.done_s + 0.001)) / 2
    words = f"peek {put.job}"
    look = Op(99, 0, record.LOOK, at_s, at_s, 0, "NOT_FOUND", "", words, put.tube)
    last = max(op.sent_s for op in about) + 1 if about else at_s
    # A second look, after all other commands about the job, finds it again.
    found = look._replace(sent_s=last, done_s=last, outcome="FOUND")
    return [*clients, [look, found]], put.job


def repeat(clients: History, seed: int) -> tuple[History, int]:
    """Add a second DELETED."""
    delete = _any(clients, seed, record.DELETE, "DELETED")
    again = delete._replace(client=99, sent_s=delete.done_s + 1, done_s=delete.done_s + 2)
    return [*clients, [again]], delete.job


def revive(clients: History, seed: int) -> tuple[History, int]:
    """Add a client that sees a job after its deletion."""
    delete = _any(clients, seed, record.DELETE, "DELETED")
    at_s = delete.done_s + 0.5
    look = Op(99, 0, record.LOOK, at_s, at_s, 0, "FOUND", "", f"peek {delete.job}", "")
    return [*clients, [look]], delete.job


def postpone(clients: History, seed: int) -> tuple[History, int]:
    """Put a more urgent job before a plain delivery, and never deliver it."""
    chance = random.Random(seed)
    plain = [
        op
        for ops in clients
        for op in ops
        if op.outcome == "RESERVED" and op.line.startswith("reserve-with-timeout")
    ]
    puts = {op.body: op for ops in clients for op in ops if op.kind == record.PUT}
    moved = {op.job for ops in clients for op in ops if op.kind in (record.RELEASE, record.BURY)}
    # A reserve without a known reply would explain why one job was passed over.
    unknown = [op for ops in clients for op in ops if op.kind == record.RESERVE]
    calm_s = min(op.sent_s for op in unknown if record.is_unknown(op))
    urgent = [
        op
        for op in plain
        if op.done_s < calm_s and op.job not in moved and int(puts[op.body].line.split()[1]) > 0
    ]
    taken = chance.choice(urgent)
    put = puts[taken.body]
    job = max(op.job for ops in clients for op in ops) + 1
    at_s = taken.sent_s - 0.001
    words = "put 0 0 600 60"
    head = record.make_head(99, 0, 600, 60)
    passed = Op(99, 0, record.PUT, at_s, at_s, job, "INSERTED", head, words, put.tube)
    return [*clients, [passed]], job
