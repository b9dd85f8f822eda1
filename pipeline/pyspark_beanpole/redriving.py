"""Which jobs are to be put back to work: by the latest event of each job, chosen with SQL."""

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from beanpole.errors import ConfigurationError


def latest(events: DataFrame) -> DataFrame:
    """Return the latest event of each job."""
    newest = F.max_by(F.struct(*events.columns), "offset").alias("newest")
    return events.groupBy("job_id").agg(newest).select("newest.*")


def chosen(events: DataFrame, state: str, where: str) -> DataFrame:
    """Return the latest events of the jobs in a state that satisfy an SQL expression.

    Raises:
        ConfigurationError: the expression cannot be understood.
    """
    try:
        jobs = latest(events).where(F.col("state") == state).where(where)
        # Over Spark Connect nothing is understood before it is asked about.
        jobs.columns  # noqa: B018
    except (AnalysisException, ParseException) as error:
        first = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"--where {where!r}: {first}") from None
    return jobs


def counted(jobs: DataFrame) -> DataFrame:
    """Return how many jobs there are by tube, latest event and reason, the most first."""
    keys = ("tube", "event", "reason")
    return jobs.groupBy(*keys).agg(F.count("*").alias("jobs")).orderBy(F.desc("jobs"), *keys)
