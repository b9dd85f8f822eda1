"""What a node does while it leads: entries, time, and which client gets which job."""
