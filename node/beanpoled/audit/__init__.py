"""The audit log: administrators' calls at this node, one line each, in separate files."""
