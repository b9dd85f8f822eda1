"""The Beanpole daemon: one process per node. Wiring, frontends, admin, metrics."""
