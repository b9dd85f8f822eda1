"""Invented figures for the tests of the benchmark."""

from bench.generator import Figure
from bench.results import Results

LATENCY = {"p50": 1000.0, "p99": 2000.0, "p99_9": 3000.0, "max": 4000.0, "count": 100.0}


def figure(number: int, system: str, op_s: float, connections: int = 64) -> Figure:
    return Figure(
        round=number,
        system=system,
        promise="disk of one",
        workload="full",
        connections=connections,
        rate=0,
        op_s=op_s,
        latency_us={"all": LATENCY, "put": LATENCY},
        done_per_s={"put": op_s},
        gap_us=1,
        client_cpu_share=0.1,
        server_us_per_op=10,
        cpu_s_per_1000_jobs=0.1,
        written_bytes_per_job=500,
        resident_bytes_per_job=0,
    )


def run(*rates: tuple[str, float]) -> Results:
    """Return results with one round for each occurrence of a system's name."""
    seen: dict[str, int] = {}
    figures = []
    for system, op_s in rates:
        seen[system] = seen.get(system, 0) + 1
        figures.append(figure(seen[system], system, op_s))
    return Results("quick", "today", {"processor": "2 x fast"}, 3.0, 2, 100, figures)
