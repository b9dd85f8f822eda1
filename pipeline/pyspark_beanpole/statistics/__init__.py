"""Statistics of an event log: DataFrames in, DataFrames out, one file for each question.

Everything is computed by Spark's built-in functions. A file has the question's `partial`, which
reduces events to rows that can be added up, and what makes answers of them; a stream keeps the
partials of its batches and adds them up later, so that both ways give the same numbers. All of
them together are in `tables`. Nothing here reads or writes anything.
"""
