"""The logger of the Spark side, which writes to standard error unless logging is configured.

Spark's Python processes do not configure it, and Python would then drop everything below a warning.
"""

import logging
from typing import Final

log: Final = logging.getLogger("pyspark_beanpole")

if not logging.getLogger().handlers and not log.handlers:
    _handler = logging.StreamHandler()
    _handler.setFormatter(logging.Formatter("beanpole: %(message)s"))
    log.addHandler(_handler)
    log.setLevel(logging.INFO)
