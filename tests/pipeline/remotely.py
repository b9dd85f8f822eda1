"""Read and write by Spark Connect: a separate program, as a process has one kind of session.

Arguments: the URL of the server, which is on this machine, and the address of a node.
"""

import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

ROWS = 34
BATCH_ROWS = 400


def main() -> None:
    """Write equal rows from a table, and a stream whose last batch is repeated after a restart."""
    remote, address = sys.argv[1:]
    spark = SparkSession.builder.remote(remote).getOrCreate()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    events = spark.read.format("beanpole").option("addresses", address).load().count()
    rows = spark.range(ROWS).selectExpr("concat('row ', id % 3) AS body", "'table' AS tube")
    rows.write.format("beanpole").mode("append").option("addresses", address).save()
    with tempfile.TemporaryDirectory() as directory:
        put(spark, address, directory)
        commits = sorted(Path(directory, "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink()
        # The checkpoint already has the range of the last batch, so this run repeats it.
        put(spark, address, directory)
    sys.stdout.write(f"{events} events, {ROWS} + {events} rows\n")


def put(spark: SparkSession, address: str, directory: str) -> None:
    """Run a stream of equal rows from its checkpoint to the end."""
    source = spark.readStream.format("beanpole").option("addresses", address)
    source = source.option("startingOffsets", "earliest").option("maxRowsPerTrigger", BATCH_ROWS)
    rows = source.load().selectExpr("'same' AS body", "'stream' AS tube")
    sink = rows.writeStream.format("beanpole").option("addresses", address)
    sink = sink.option("checkpointLocation", directory).trigger(availableNow=True)
    sink.start().awaitTermination()


if __name__ == "__main__":
    main()
