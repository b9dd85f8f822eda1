"""All statistics together, by the names of their tables.

Batch and stream go the same way: `partials` of events, which can be put together and added up,
and `finished` tables of them. What each column means is in docs/pipeline-statistics.md.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from pyspark_beanpole.statistics import (
    attempts,
    dead_letters,
    depth,
    histogram,
    slo,
    times,
    transitions,
)
from pyspark_beanpole.statistics.backlog import backlog
from pyspark_beanpole.statistics.failures import failures
from pyspark_beanpole.statistics.keys import DEFAULT_LIMITS, Limits
from pyspark_beanpole.statistics.throughput import throughput
from pyspark_beanpole.statistics.workers import workers


def partials(events: DataFrame, limits: Limits = DEFAULT_LIMITS) -> dict[str, DataFrame]:
    """Return what is kept of events, by name; rows of several logs or batches may be put together.

    A batch of a stream must hold each event once: partials are sums.
    """
    return {
        "transitions": transitions.partial(events),
        "times": times.partial(events),
        "histogram": histogram.partial(events),
        "attempts": attempts.partial(events),
        "minutes": depth.partial(events),
        "slo": slo.partial(events, limits.wait_s, limits.run_s),
        "buried": dead_letters.partial(events),
    }


def finished(
    parts: Mapping[str, DataFrame], start: DataFrame | None = None
) -> dict[str, DataFrame]:
    """Return the tables of partials, by name.

    Args:
        parts: from `partials`, of any number of batches put together.
        start: the depths before the first event (`depth.before`), if that was not offset 0.
    """
    cube = transitions.merge(parts["transitions"])
    depths = depth.finish(parts["minutes"], start)
    return {
        "throughput": throughput(cube),
        "times": times.finish(parts["times"]),
        "histogram": histogram.finish(parts["histogram"]),
        "attempts": attempts.merge(parts["attempts"]),
        "failures": failures(cube),
        "workers": workers(cube),
        "dead_letters": dead_letters.finish(parts["buried"]),
        "depth": depths,
        "backlog": backlog(depths),
        "slo": slo.finish(parts["slo"]),
    }
