"""Figures of this process from the system, under the standard names of Prometheus' clients.

The process that converts events is separate and not counted.
"""

import os
import resource
from pathlib import Path
from typing import Final, NamedTuple

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PROC: Final = Path("/proc/self")
# Positions in /proc/self/stat after the program name (proc(5) counts from 1, beginning with the
# id).
_UTIME, _STIME, _START, _VSIZE, _RSS = 11, 12, 19, 20, 21


class Figures(NamedTuple):
    """The process now; times in seconds, the start in Unix time."""

    cpu_seconds_total: float
    resident_memory_bytes: int
    virtual_memory_bytes: int
    open_fds: int
    max_fds: int
    start_time_seconds: float


def read() -> Figures:
    """Read /proc; some 50 us."""
    # The program's name may contain spaces and parentheses.
    words = (_PROC / "stat").read_text().rpartition(")")[2].split()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Figures(
        (int(words[_UTIME]) + int(words[_STIME])) / _TICKS_PER_S,
        int(words[_RSS]) * _PAGE_BYTES,
        int(words[_VSIZE]),
        len(os.listdir(_PROC / "fd")),
        soft,
        _boot_time_s() + int(words[_START]) / _TICKS_PER_S,
    )


def _boot_time_s() -> int:
    lines = Path("/proc/stat").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("btime "))
