"""The base class that the tests of qless-py 0.11.4 import, but its source package lacks."""

import unittest
from typing import Any

import qless
import redis


class TestQless(unittest.TestCase):
    """Each test begins and ends with an empty server."""

    redis: Any

    @classmethod
    def setUpClass(cls) -> None:
        cls.redis = redis.Redis()
        cls.redis.execute_command("SCRIPT", "FLUSH")

    def setUp(self) -> None:
        assert self.redis.keys("*") == []
        self.client = qless.Client()
        self.worker = qless.Client()
        self.worker.worker_name = "worker"

    def tearDown(self) -> None:
        self.redis.flushdb()
