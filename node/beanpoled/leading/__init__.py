"""The work of a leader: entries, time, and the assignment of jobs to waiting clients."""
