"""The Beanpole daemon, one process per node: wiring, frontends, administration, metrics."""
