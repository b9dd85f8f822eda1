"""Bytes on disk: the write-ahead log, snapshots and small files. Knows neither Raft nor jobs."""
