"""The interface of the data source and sink "beanpole" to Spark.

Spark imports this module in every session of the machine, so the implementation (`readers`, `sink`)
and its dependencies (Arrow, gRPC) are imported only when they are needed.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

# Unused, but a Spark before 4.2 lacks this name and must not find this data source.
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as _  # noqa: F401

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BeanpoleSource(DataSource):
    """Reads events, writes jobs; docs/pipeline-spark.md lists the options."""

    @classmethod
    def name(cls) -> str:
        return "beanpole"

    def schema(self) -> "StructType":
        from pyspark_beanpole import options, schema

        return schema.chosen(options.columns(self.options))

    def reader(self, schema: "StructType") -> DataSourceReader:
        from pyspark_beanpole import export_reader, options, readers

        if options.is_export(self.options):
            return export_reader.ExportReader(options.for_export(self.options), schema)
        return readers.EventReader(options.for_batch(self.options), schema)

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:
        from pyspark_beanpole import options, readers

        return readers.EventStream(options.for_stream(self.options), schema)

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from pyspark_beanpole import options, sink

        sink.check(schema, overwrite)
        return sink.JobWriter(options.for_writing(self.options, stream=False))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_beanpole import options, sink

        sink.check(schema, overwrite)
        return sink.JobStream(options.for_writing(self.options, stream=True))
