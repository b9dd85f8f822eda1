"""Bytes on disk: the write-ahead log, snapshots and small files. No Raft, no jobs."""
