"""Check whether the limits of a configuration fit into the memory.

The amount of memory is determined in `memory`.
"""

from typing import Final

from beanpoled.config.memory import Memory
from beanpoled.config.node import NodeConfig
from beanpoled.config.settings import MIB, QUEUE_BYTES_MIN

# The memory of a node without a job, compiled or not, including the process of its events.
BASE_BYTES: Final = 256 * MIB


def warning(config: NodeConfig, queue_bytes_max: int, memory: Memory) -> str | None:
    """Return a warning if the limits exceed the memory, else None.

    Args:
        config: of this node.
        queue_bytes_max: the limit in force: the leader's, once it is known.
        memory: of this machine.
    """
    parts = {
        "queue_bytes_max": queue_bytes_max,
        "log_memory_bytes": config.log_memory_bytes,
        "outbox_bytes_max": config.outbox_bytes_max,
        "event_segment_bytes": config.event_segment_bytes if config.events == "on" else 0,
    }
    beside = BASE_BYTES + sum(parts.values()) - queue_bytes_max
    if queue_bytes_max + beside <= memory.bytes:
        return None
    told = " + ".join(f"{name} {value}" for name, value in parts.items() if value)
    fits = memory.bytes - beside
    if fits >= QUEUE_BYTES_MIN:
        remedy = f"set queue_bytes_max to {fits // MIB} MiB or less on all nodes"
    else:
        enough = beside + QUEUE_BYTES_MIN
        remedy = f"no queue_bytes_max fits: lower the others, or give it {enough} bytes"
    return (
        f"{told} + {BASE_BYTES} for the rest are more than {memory.source} memory of "
        f"{memory.bytes} bytes: when the queue grows, the system will kill this node, and all "
        f"others that are alike; {remedy}"
    )
