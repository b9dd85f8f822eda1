"""The memory that the system reports, and warnings when limits exceed it."""

from pathlib import Path

import pytest

from beanpoled.config import memory, memory_budget
from beanpoled.config import node as config
from beanpoled.config.memory import Memory
from beanpoled.config.settings import GIB, MIB
from tests.unit.node.stage import Stage
from tests.unit.node.stage import config as stage_config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1 kB\n")
    write(tmp_path, "proc/self/cgroup", "")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_machine_has_what_it_has(root: Path) -> None:
    assert memory.found(str(root)) == Memory(16 * GIB, "the machine's")
    assert memory.queue_bytes_default(Memory(16 * GIB, "")) == 8 * GIB
    assert memory.queue_bytes_default(Memory(18 * GIB, ""), nodes=3) == 3 * GIB


def test_a_cgroup_of_version_2_and_all_above_it_count(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/a.slice/b.service\n")
    write(root, "sys/fs/cgroup/a.slice/b.service/memory.max", "max\n")
    assert memory.found(str(root)).bytes == 16 * GIB
    write(root, "sys/fs/cgroup/a.slice/memory.max", f"{2 * GIB}\n")
    assert memory.found(str(root)) == Memory(2 * GIB, "the cgroup's")
    write(root, "sys/fs/cgroup/a.slice/b.service/memory.max", f"{GIB}\n")
    assert memory.found(str(root)).bytes == GIB


def test_a_container_that_sees_only_its_own_top(root: Path) -> None:
    write(root, "proc/self/cgroup", "0::/../kubepods/pod1\n")
    write(root, "sys/fs/cgroup/memory.max", f"{3 * GIB}\n")
    assert memory.found(str(root)).bytes == 3 * GIB


def test_a_cgroup_of_version_1(root: Path) -> None:
    write(root, "proc/self/cgroup", "4:cpu,cpuacct:/x\n3:memory:/docker/1\n")
    name = "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes"
    write(root, name, "9223372036854771712\n")
    assert memory.found(str(root)).bytes == 16 * GIB
    write(root, name, f"{512 * MIB}\n")
    assert memory.found(str(root)).bytes == 512 * MIB


def test_where_nobody_says_anything_little_is_assumed(tmp_path: Path) -> None:
    assert memory.found(str(tmp_path)) == Memory(memory.UNKNOWN_BYTES, "assumed")


def test_the_default_follows_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "BEANPOLE_CLUSTER": "dev",
        "BEANPOLE_NODE_ID": "a",
        "BEANPOLE_MEMBERS": "a=127.0.0.1:1/127.0.0.1:2",
        "BEANPOLE_DATA_DIR": "/data",
        "BEANPOLE_PEER_LISTEN": "127.0.0.1:1",
        "BEANPOLE_GRPC_LISTEN": "127.0.0.1:2",
        "BEANPOLE_HTTP_LISTEN": "127.0.0.1:3",
    }
    monkeypatch.setattr(memory, "found", lambda: Memory(4 * GIB, "the cgroup's"))
    assert config.load(None, environment, {}).queue_bytes_max == 2 * GIB
    given = {"queue_bytes_max": "3 GiB"}
    assert config.load(None, environment, given).queue_bytes_max == 3 * GIB


def test_limits_beyond_the_memory_are_named_with_what_would_fit() -> None:
    cluster = stage_config()
    there = Memory(4 * GIB, "the cgroup's")
    assert memory_budget.warning(cluster, 2 * GIB, there) is None
    line = memory_budget.warning(cluster, 4 * GIB, there)
    assert line is not None and "\n" not in line
    assert f"queue_bytes_max {4 * GIB}" in line and f"the cgroup's memory of {4 * GIB}" in line
    fits = int(line.partition("set queue_bytes_max to ")[2].split()[0]) * MIB
    assert memory_budget.warning(cluster, fits, there) is None
    assert memory_budget.warning(cluster, fits + MIB, there) is not None


@pytest.mark.parametrize("memory_bytes", [1, 256 * MIB, 401 * MIB - 1])
def test_no_limit_that_a_start_refuses_is_advised(memory_bytes: int) -> None:
    """It was "set queue_bytes_max to 0 MiB or less" in small containers."""
    cluster = stage_config()
    line = memory_budget.warning(cluster, MIB, Memory(memory_bytes, "the cgroup's"))
    assert line is not None and "set queue_bytes_max to" not in line
    enough = int(line.rpartition("give it ")[2].split()[0])
    assert memory_budget.warning(cluster, MIB, Memory(enough, "the cgroup's")) is None


def test_a_leader_with_more_memory_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All nodes hold the same jobs, so the leader's limit is this node's, too."""
    monkeypatch.setattr(memory, "found", lambda: Memory(4 * GIB, "the machine's"))
    stage = Stage(queue_bytes_max=GIB)
    stage.lead()
    stage.pass_us(1_000_000)
    assert not any("the leader's limits" in line for line in stage.host.lines)
    stage.node.context.machine.queue_bytes_max = 64 * GIB
    stage.pass_us(1_000_000)
    assert sum("the leader's limits" in line for line in stage.host.lines) == 1
