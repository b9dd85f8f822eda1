"""Statistics of an event log, in Arrow and NumPy: partial results, and the final tables.

`parts` reduces the events of ranges of offsets to small tables that can be merged (`reduced`,
`merged`); `answers` turns them into the tables of docs/pipeline-statistics.md (`finished`). Both
are pure and independent of Spark: `inputs` runs them in its tasks.
"""
