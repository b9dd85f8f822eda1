"""Select the jobs to put back to work, with SQL over the latest event of each job."""

from typing import Final

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from beanpole.errors import ConfigurationError

# The class of SQLSTATE for values that an operator rejects, like a text that is not a number or a
# division by zero. Only the user's expression computes with values.
_DATA_ERROR: Final = "22"


def latest(events: DataFrame) -> DataFrame:
    """Return the latest event of each job."""
    newest = F.max_by(F.struct(*events.columns), "offset").alias("newest")
    return events.groupBy("job_id").agg(newest).select("newest.*")


def chosen(events: DataFrame, state: str, where: str) -> DataFrame:
    """Return the latest events of the jobs in a state that satisfy an SQL expression, cached.

    Raises:
        ConfigurationError: the expression is not valid.
    """
    try:
        # Spark computes the constants of an expression when it plans the cache.
        jobs = latest(events).where(F.col("state") == state).where(where).cache()
        # Spark Connect analyses an expression only when its result is asked for.
        jobs.columns  # noqa: B018
    except PySparkException as error:
        if not (isinstance(error, (AnalysisException, ParseException)) or _is_of_values(error)):
            raise
        raise _wrong(where, error, events.columns) from None
    return jobs


def count(jobs: DataFrame, where: str) -> int:
    """Return the number of chosen jobs.

    Raises:
        ConfigurationError: the expression fails on the values of some job.
    """
    try:
        return jobs.count()
    except PySparkException as error:
        if not _is_of_values(error):
            raise
        raise _wrong(where, error, jobs.columns) from None


def _is_of_values(error: PySparkException) -> bool:
    return (error.getSqlState() or "").startswith(_DATA_ERROR)


def _wrong(where: str, error: PySparkException, columns: list[str]) -> ConfigurationError:
    words = str(error).strip().splitlines()[0].partition(" SQLSTATE:")[0].rstrip(".;")
    return ConfigurationError(f"--where {where!r}: {words}; its columns are {', '.join(columns)}")


def counted(jobs: DataFrame) -> DataFrame:
    """Return the number of jobs by tube, latest event and reason, the most frequent first."""
    keys = ("tube", "event", "reason")
    return jobs.groupBy(*keys).agg(F.count("*").alias("jobs")).orderBy(F.desc("jobs"), *keys)
