"""Beanpole for Spark: a data source and sink named "beanpole", statistics, reports.

Spark imports every package whose name begins with pyspark_ in every session of the machine, also
in those that have nothing to do with Beanpole. So nothing is imported here until it is asked for.

A program that imports this package before it makes a session needs no activated environment: Spark
looks for data sources, and runs tasks, with the Python that PYSPARK_PYTHON names, else with the
first python3 of PATH, which may know nothing of this environment.
"""

import os
import sys
from typing import Any

# Under spark-submit the JVM runs already, and executors may have their Python elsewhere.
if "PYSPARK_GATEWAY_PORT" not in os.environ:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def __getattr__(name: str) -> Any:
    """Give Spark the data source; a Spark that is too old for it does not see it."""
    if name == "DefaultSource":
        try:
            from pyspark_beanpole.source import BeanpoleSource
        except ImportError as error:
            raise AttributeError(f"{name} needs Spark 4.2 or newer: {error}") from error
        return BeanpoleSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
