"""What a node does with the machine's events: keeps them in segments, serves and exports them.

`events` is the form in memory, `columns` the form for readers, `segment` the file, `store` what is
kept here, `service` the gRPC side; `source` and `export` are the other end of that, for a cluster.
"""
