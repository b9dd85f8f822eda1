"""The work of a node while it leads: entries, time, and which client gets which job."""
