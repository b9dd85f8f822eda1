"""The table of protocols that a node speaks; nothing else.

The listeners of each row are in `config.protocols`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from beanpoled.frontends.beanstalk.frontend import BeanstalkFrontend
from beanpoled.frontends.clients import Clients
from beanpoled.frontends.frontend import Frontend
from beanpoled.frontends.gearman.frontend import GearmanFrontend
from beanpoled.frontends.qless.frontend import QlessFrontend
from beanpoled.frontends.workq.frontend import WorkqFrontend

Table = Mapping[str, Callable[[Clients, str], Frontend]]

FRONTENDS: Final[Table] = {
    "beanstalk": BeanstalkFrontend,
    "workq": WorkqFrontend,
    "gearman": GearmanFrontend,
    "qless": QlessFrontend,
}
