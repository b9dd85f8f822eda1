"""Jobs, queues and their order. Neither permissions of sessions nor entries of the log."""
