"""The commands of a node's own clients on their way to the leader: outbox, batches, waits."""
