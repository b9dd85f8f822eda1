"""When the files of TLS are valid, for the log, `--check`, `beanpole doctor` and the metrics.

Callers decide the consequences of a file that is not valid yet, has expired or expires soon.
"""

import math
import time
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from beanpole.client.expiry import Span, spans
from beanpoled.config.tls import TlsConfig
from beanpoled.trust import revocations

DAY_S: Final = 86_400.0
# A month to make and install another one.
SOON_DAYS: Final = 30

_CERTIFICATES: Final = ("tls_certificate_file", "peer_tls_certificate_file")
_AUTHORITIES: Final = ("tls_client_ca_file", "peer_tls_ca_file")
_LISTS: Final = ("tls_crl_file", "peer_tls_crl_file")
# In the order of the settings of clients, and then of nodes.
_SETTINGS: Final = (*zip(_CERTIFICATES, _AUTHORITIES, _LISTS, strict=True),)


class Validity(NamedTuple):
    """The validity of one file.

    Attributes:
        setting: that names the file.
        path: of the file.
        days: until it ends, negative if it has ended; infinite for a list without an end.
        broken: why the file cannot be read; empty if it can.
        some_ended: whether a certificate in a file of several has ended, and others have not.
        begin_s: when it begins to be valid, in seconds since 1970; 0 if that is past.
    """

    setting: str
    path: str
    days: float
    broken: str = ""
    some_ended: bool = False
    begin_s: float = 0.0

    @property
    def is_own(self) -> bool:
        """Whether it is the node's own certificate."""
        return self.setting in _CERTIFICATES

    @property
    def is_invalid(self) -> bool:
        """Whether it has ended, or is not valid yet."""
        return self.days < 0 or self.begin_s > 0

    @property
    def is_near(self) -> bool:
        """Whether it ends soon, or a part of it has ended."""
        return self.some_ended or self.days < SOON_DAYS

    @property
    def words(self) -> str:
        """When it ends, or begins, in words that follow the path."""
        if self.begin_s:
            return f"is not valid before {_stamp(self.begin_s)}"
        if self.some_ended:
            return "has a certificate that has expired, beside valid ones"
        if self.days < 0:
            return f"has expired {-self.days:.0f} days ago"
        if self.days == math.inf:
            return "does not expire"
        return f"expires in {self.days:.0f} days"


def validities(config: TlsConfig, now_s: float, is_peers: bool) -> Iterator[Validity]:
    """Yield the validity of the certificate, the CA and the list of revoked certificates.

    Args:
        config: that names the files; those without a name are left out.
        now_s: wall clock.
        is_peers: whether the files are those for other nodes, or those for clients.
    """
    for setting in _SETTINGS[is_peers]:
        path = getattr(config, setting)
        if not path:
            continue
        try:
            found = _spans(setting, path)
        except (OSError, ValueError, IndexError) as error:
            yield Validity(setting, path, 0.0, broken=f"cannot be read: {error}")
            continue
        ends_s = [span.end_s for span in found]
        later = sum(end_s > now_s for end_s in ends_s)
        days = (next_end_s(ends_s, now_s) - now_s) / DAY_S
        begin_s = _begin_s(found, now_s)
        yield Validity(setting, path, days, "", 0 < later < len(ends_s), begin_s)


def spans_of(setting: str, path: str) -> list[Span]:
    """Return when all that is in a file is valid; none if it is unknown.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        return _spans(setting, path)
    except (ValueError, IndexError):  # OpenSSL may read more than `expiry` does
        return []


def fault_of(found: Sequence[Span], now_s: float) -> str:
    """Return why nothing in a file is valid now; empty if something is, or if that is unknown.

    The words follow the path. They have a date and no duration: they are the same at each look.
    """
    if not found or any(span.begin_s <= now_s < span.end_s for span in found):
        return ""
    if begin_s := _begin_s(found, now_s):
        return f"is not valid before {_stamp(begin_s)}"
    return f"has expired at {_stamp(max(span.end_s for span in found))}"


def next_end_s(ends_s: Sequence[float], now_s: float) -> float:
    """Return the first end that is still to come, or the last one."""
    return min((end_s for end_s in ends_s if end_s > now_s), default=max(ends_s))


def _begin_s(found: Sequence[Span], now_s: float) -> float:
    """Return when the first part of a file begins to be valid; 0 if one is valid, or none will."""
    if any(span.begin_s <= now_s < span.end_s for span in found):
        return 0.0
    return min((span.begin_s for span in found if span.begin_s > now_s), default=0.0)


def _stamp(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def _spans(setting: str, path: str) -> list[Span]:
    if setting in _LISTS:
        return [revocations.span(path)]
    # The first certificate of a chain is the node's own; of several CAs any may have made others.
    found = spans(path)
    return found if setting in _AUTHORITIES else found[:1]
