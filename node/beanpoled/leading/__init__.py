"""What a node does while it leads: entries, time, and who gets which job."""
