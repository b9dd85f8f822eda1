"""Beanpole for Spark: a data source and sink named "beanpole", statistics, reports.

Spark imports every package whose name begins with pyspark_ in every session of the machine, also
in sessions that have nothing to do with Beanpole. So this module imports nothing until Spark looks
up the data source.

A program that imports this package before it creates a session needs no activated environment.
Otherwise Spark looks for data sources, and runs tasks, with the first python3 of PATH unless
PYSPARK_PYTHON is set, and that Python may lack this environment.
"""

import os
import sys
from typing import Any

# Under spark-submit the JVM runs already, and the Python of the executors may be elsewhere.
if "PYSPARK_GATEWAY_PORT" not in os.environ:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def __getattr__(name: str) -> Any:
    """Return the data source; a Spark that is too old for it does not find the attribute."""
    if name == "DefaultSource":
        try:
            from pyspark_beanpole.source import BeanpoleSource
        except ImportError as error:
            raise AttributeError(f"{name} needs Spark 4.2 or newer: {error}") from error
        return BeanpoleSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
