"""A node's own clients, towards the leader: outbox, numbered batches, waits."""
