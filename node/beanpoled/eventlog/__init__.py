"""The machine's events at a node: stored in segments, served, exported.

`events` is the form in memory, `columns` the form for readers, `segment` the file, `store` what
this node keeps, `rpc.events` the gRPC side; `source` and `export` read the events of a cluster.
"""
