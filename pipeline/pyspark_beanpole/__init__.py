"""Beanpole for Spark: a data source and sink named "beanpole", statistics, reports.

Spark imports every package whose name begins with pyspark_ in every session of the machine, also
in those that have nothing to do with Beanpole. So nothing is imported here until it is asked for.
"""

from typing import Any


def __getattr__(name: str) -> Any:
    """Give Spark the data source; a Spark that is too old for it does not see it."""
    if name == "DefaultSource":
        try:
            from pyspark_beanpole.source import BeanpoleSource
        except ImportError as error:
            raise AttributeError(f"{name} needs Spark 4.2 or newer: {error}") from error
        return BeanpoleSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
