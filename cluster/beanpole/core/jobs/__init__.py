"""Jobs, queues and their order. No sessions' rights, no entries of the log."""
