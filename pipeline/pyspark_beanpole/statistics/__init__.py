"""Statistics of an event log, in Arrow and NumPy: what is kept of events, and the answers.

`parts` reduces the events of ranges of offsets to small tables that can be put together
(`reduced`, `merged`), `answers` makes the tables of docs/pipeline-statistics.md of them
(`finished`). Both are pure and know no Spark: `inputs` runs them in its tasks.
"""
