"""The report: one HTML page for people, tables for programs, and a summary of both.

`run` computes and writes, `figures` holds the few numbers of the page, `series` samples them over
time, `scales` and `charts` draw, `page` and `blocks` render HTML.
"""
