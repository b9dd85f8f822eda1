"""The periodic look at the files of certificates, beside the loop.

They may be on a volume that does not answer, as NFS and secrets in Kubernetes may be. The files are
compared and judged in `certificates`; an operator's request reads them in the loop.
"""

import asyncio
import time
from typing import Final

from beanpoled.host.seam import WARNING, Log
from beanpoled.trust.apart import apart
from beanpoled.trust.certificates import STAY, Certificates, Found
from beanpoled.trust.trust import Trust

# A look takes milliseconds, and a second on a loaded machine. Less than the ten seconds between two
# looks, so that a volume that hangs is known before the next one is due.
HANGS_AFTER_S: Final = 5.0


class Rereading:
    """Looks at the files of each set of certificates, one look at a time.

    Attributes:
        hanging: why a set is not known to be in use as its files are now, by the prefix of its
            settings: a look at it has begun long ago, and has not ended.
    """

    def __init__(self, trust: Trust, log: Log, hangs_after_s: float = HANGS_AFTER_S) -> None:
        """Begin without a look.

        Args:
            trust: whose certificates are looked at.
            log: of the node.
            hangs_after_s: a look that takes longer is reported.
        """
        self.hanging: dict[str, str] = {}
        self._trust = trust
        self._log = log
        self._hangs_after_s = hangs_after_s
        self._failing: set[str] = set()  # the settings of sets whose look could not begin
        self._looking: set[str] = set()  # the settings of sets with a look that has not ended

    async def look(self) -> None:
        """Look at each set once; skip one whose last look has not ended, and do not wait for it."""
        free = [one for one in self._trust.certificates() if one.setting not in self._looking]
        await asyncio.gather(*(self._look_at(one) for one in free))

    async def _look_at(self, certificates: Certificates) -> None:
        self._looking.add(certificates.setting)
        try:
            found = await self._found(certificates)
        except OSError as error:  # the next look tries again
            if certificates.setting not in self._failing:
                self._failing.add(certificates.setting)
                self._log(f"{certificates.setting}* files: {error.strerror}; {STAY}", WARNING)
            return
        finally:
            self._looking.discard(certificates.setting)
        self._failing.discard(certificates.setting)
        words = certificates.take(found)
        if words is not None:
            self._log(words, WARNING)
        await self._trust.end_revoked()

    async def _found(self, certificates: Certificates) -> Found:
        setting = certificates.setting
        begin_s = time.monotonic()
        looking = asyncio.ensure_future(apart("certificates", certificates.look))
        done, _ = await asyncio.wait([looking], timeout=self._hangs_after_s)
        if not done:
            words = f"the file system has not answered for {self._hangs_after_s:g} s at "
            words += f"{certificates.reading!r}; {STAY}"
            self.hanging[setting] = words
            self._log(f"{setting}* files: {words}", WARNING)
            try:
                await asyncio.wait([looking])
            finally:
                del self.hanging[setting]
            after_s = time.monotonic() - begin_s
            self._log(f"{setting}* files: the file system answered after {after_s:.0f} s")
        return looking.result()
