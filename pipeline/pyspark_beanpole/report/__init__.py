"""The report: one HTML page for people, tables for machines, and a summary of both.

`run` computes and writes, `figures` collects the few numbers that the page shows, `series` samples
what happens over time, `scales` and `charts` draw, `page` and `blocks` put it into HTML.
"""
