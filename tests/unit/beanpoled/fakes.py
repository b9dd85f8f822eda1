"""A fake node made of numbers, for the tests of admin, health and metrics."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

from beanpole.core.users import Users
from beanpoled.examining import Finding
from beanpoled.host.seam import INFO
from beanpoled.reloading import Outcome, Shown
from beanpoled.trust.trust import Trust
from beanpoled.view import (
    ConnectionFigures,
    Digests,
    JobCounts,
    Lately,
    Metrics,
    NodeView,
    QueueFigures,
    Role,
    SnapshotStream,
)


def trust_of(node: str = "n0", secret: str = "", takes_old: bool = True) -> Trust:
    """Return the trust of a node of the cluster "dev"; its log lines are dropped."""
    return Trust("dev", node, secret, lambda line, level=INFO: None, takes_old)


class FakeView:
    """Implements `NodeView`; tests set the attributes."""

    def __init__(self, node_id: str = "n0", members: tuple[str, ...] = ("n0", "n1", "n2")) -> None:
        self.cluster = "dev"
        self.node_id = node_id
        self.members = members
        self.config_hash = "0123456789abcdef"
        self.birth = "89abcdef" * 4
        self.absent: tuple[str, ...] = ()
        self.version = "0.1.0"
        self.machine_version = 2
        self.machine_version_known = 3
        self.upgrade_finalize = "auto"
        self.finalize_refusal = ""
        self.finalizes: list[int] = []
        self.durability = "sync"
        self.role: Role = "follower"
        self.leader: str | None = "n1"
        self.term = 3
        self.commit_index = 9
        self.applied_index = 8
        self.first_index = 1
        self.last_index = 10
        self.caught_up = True
        self.users: Users | None = Users()
        self.serving = True
        self.draining = False
        self.rejoining = False
        self.state = "serving"
        self.awaited = ""
        self.failure: str | None = None
        self.loop_lag_s = 0.001
        self.disk_lag_s = 0.0
        self.disk_hangs = False
        self.disk_is_behind = False
        self.disk_full = False
        self.live_links: tuple[str, ...] = ("n1",)
        self.reasons: dict[str, str] = {}
        self.skews: dict[str, float] = {}
        self.job_counts = JobCounts(1, 2, 3, 4)
        self.told = Digests(8, 11, 5, 12, 4)
        self.busy: list[QueueFigures] = []
        self.numbers = Metrics(fsyncs_total=5, fsync_seconds_total=0.25, outbox_bytes=77)
        self.snapshot: SnapshotStream | None = None
        self.transfers: list[str | None] = []
        self.transfer_to: str | None = None
        self.snapshot_index = 0
        self.snapshots_begun = 0
        self.lacks = ""
        self.clients: list[ConnectionFigures] = []

    def waiting_for(self) -> tuple[str, ...]:
        return self.absent

    def waits(self) -> str:
        return self.awaited

    def links(self) -> tuple[str, ...]:
        return self.live_links

    def no_link_words(self, member: str) -> str:
        return self.reasons.get(member, "")

    def skews_s(self) -> dict[str, float]:
        return self.skews

    def digests(self) -> Digests:
        return self.told

    def jobs(self) -> JobCounts:
        return self.job_counts

    def metrics(self, with_queues: bool = True) -> Metrics:
        return self.numbers

    def lately(self) -> Lately:
        return Lately(puts_per_s=9.0)

    def lately_s(self) -> float:
        return 90.0

    def busiest(self) -> list[QueueFigures]:
        return self.busy

    def connections(self, after: int, limit: int) -> list[ConnectionFigures]:
        return [one for one in self.clients if one.id > after][:limit]

    def close_connection(self, connection_id: int) -> bool:
        before = len(self.clients)
        self.clients = [one for one in self.clients if one.id != connection_id]
        return len(self.clients) < before

    def transfer_leader(self, to: str | None) -> bool:
        """Refuse once, as a busy leader does, then hand over to `transfer_to` if that is set."""
        self.transfers.append(to)
        if len(self.transfers) < 2 or self.transfer_to is None:
            return False
        self.role = "follower"
        self.leader = self.transfer_to
        return True

    def finalize(self, to: int) -> tuple[int, str]:
        """Raise the version on the second request, as a commit takes a moment."""
        self.finalizes.append(to)
        version = to or self.machine_version_known
        if not self.finalize_refusal and len(self.finalizes) > 1:
            self.machine_version = max(self.machine_version, version)
        return version, self.finalize_refusal

    def snapshot_lacks(self) -> str:
        return self.lacks

    def take_snapshot(self) -> None:
        """Finish an older snapshot first, and then one of the applied state."""
        self.snapshots_begun += 1
        self.snapshot_index = self.applied_index - (self.snapshots_begun < 2)

    def snapshot_source(self) -> SnapshotStream | None:
        return self.snapshot


class FakeSettings:
    """The settings of a fake node."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.outcome = Outcome((f"log_level is debug at {node}",), ("jobs_max",))
        self.reloads = 0
        self.findings = [Finding("ok", "disk room", "much")]

    def settings(self) -> list[Shown]:
        return [
            Shown("node_id", f'"{self.node}"', "flag", False, False, False),
            Shown("peer_secret", "true", "environment", True, True, False),
            Shown("jobs_max", "7", "file", False, False, True),
            Shown("members", '{"n0": {"peer": "h:1"}}', "file", False, False, False),
        ]

    def reload(self) -> Outcome:
        self.reloads += 1
        return self.outcome

    def examine(self, view: NodeView) -> list[Finding]:
        return self.findings


class FakeSink:
    """Collects the chunks of a snapshot; reports a large backlog when first asked.

    It fails at a chunk with the number `fails_at`, if that is not 0.
    """

    def __init__(self, fails_at: int = 0) -> None:
        self.chunks: list[bytes] = []
        self.looks = 0
        self.failure: str | None = None
        self._fails_at = fails_at

    @property
    def backlog_bytes(self) -> int:
        self.looks += 1
        return 1 << 30 if self.looks < 3 else 0

    def write(self, chunk: bytes) -> None:
        self.chunks.append(chunk)
        if len(self.chunks) == self._fails_at:
            self.failure = "given up"


def broken_chunks(error: Exception) -> Iterator[bytes]:
    """Yield one chunk, then fail as a damaged file does."""
    yield b"good"
    raise error


async def until(condition: Callable[[], object]) -> None:
    """Let the loop run until the condition holds."""
    while not condition():  # noqa: ASYNC110 - the condition is of a node without tasks
        await asyncio.sleep(0)


def ended_by_hand(context: Any) -> None:
    """Let an operator end the upgrades of a node's cluster."""
    context.config = dataclasses.replace(context.config, upgrade_finalize="manual")
