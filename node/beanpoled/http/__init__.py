"""HTTP: health and metrics. Read only."""
