"""What administrators did at this node: one line a call, in files of its own."""
