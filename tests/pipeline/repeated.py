"""Write rows with speculation on a Spark cluster: a separate program, run by `test_repeats`.

Arguments: the master, the addresses of nodes, the number of rows, a folder for notes.
"""

import os
import sys

from pyspark_beanpole import session
from tests.pipeline.conftest import SMALL_JVM
from tests.pipeline.slow import SlowSource

PARTITIONS = 8


def main() -> None:
    """Write rows that are equal in groups of eight, with pairs of a group in one task."""
    master, addresses, rows, notes = sys.argv[1:]
    spark = session.start(
        "repeats",
        master,
        settings={
            "spark.driver.extraJavaOptions": SMALL_JVM,
            "spark.executor.extraJavaOptions": SMALL_JVM,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],
            "spark.ui.enabled": "false",
            "spark.speculation": "true",
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.1",
            "spark.speculation.minTaskRuntime": "1s",
        },
    )
    spark.dataSource.register(SlowSource)
    frame = spark.range(0, int(rows), numPartitions=PARTITIONS)
    frame = frame.selectExpr(f"concat('row ', (id div 2) % {int(rows) // 8}) AS body")
    writer = frame.write.format("beanpole_slow").mode("append").option("notes", notes)
    writer.option("addresses", addresses).option("tube", "rows").save()


if __name__ == "__main__":
    main()
