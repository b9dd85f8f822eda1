"""The machine's events at a node: kept in segments, served, exported.

`events` is the form in memory, `columns` the form for readers, `segment` the file, `store` what is
kept here, `service` the gRPC side; `source` and `export` are the other end of that, for a cluster.
"""
