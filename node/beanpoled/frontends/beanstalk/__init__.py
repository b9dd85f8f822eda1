"""The beanstalk protocol at a node."""
