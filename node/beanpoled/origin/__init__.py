"""What a node does for its own clients: outbox, numbered batches, waits."""
