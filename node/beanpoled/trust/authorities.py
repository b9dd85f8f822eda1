"""The names of CAs in a file of CAs and in one of lists of revoked certificates, compared.

OpenSSL finds the list of a CA by its name, and takes names for equal whose bytes differ. No list is
verified here: `certificates` lets OpenSSL do that.
"""

from typing import Final, NamedTuple

from beanpole.client.der import fields
from beanpole.client.expiry import subjects
from beanpoled.trust import revocations

# By attribute: its kind, and its text as OpenSSL compares it, or the field as it is.
Name = tuple[frozenset[tuple[bytes, object]], ...]

# The kinds of text that OpenSSL compares by their characters, by their tags in ASN.1.
_CODECS: Final = {
    0x0C: "utf-8",
    **dict.fromkeys((0x13, 0x14, 0x16, 0x1A), "latin-1"),
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}


class Fit(NamedTuple):
    """The names in both files; none if either is not understood.

    Attributes:
        authorities: of the certificates of CAs, in their order.
        listed: of the CAs that have a list.
    """

    authorities: tuple[Name, ...] = ()
    listed: frozenset[Name] = frozenset()

    @property
    def has_no_list(self) -> bool:
        """Whether no CA in the file of CAs has a list."""
        return bool(self.authorities) and self.listed.isdisjoint(self.authorities)

    def without(self, issuer: Name) -> "Fit":
        """Return it without the list of an issuer that OpenSSL has found to be of another CA.

        Where several CAs in the file have this name, another one of them may have made the list.
        """
        if self.authorities.count(issuer) != 1:
            return self
        return self._replace(listed=self.listed - {issuer})

    def shares_with(self, before: "Fit") -> bool:
        """Whether a CA and a list of other files are in these, too, by their names."""
        stays = not frozenset(self.authorities).isdisjoint(before.authorities)
        return stays and not self.listed.isdisjoint(before.listed)


def fit(authorities: str, lists: str) -> Fit:
    """Return the names in a file of CAs and in a file of lists.

    Raises:
        OSError: one of them cannot be read.
    """
    try:
        return Fit(
            tuple(canonical(name) for name in subjects(authorities)),
            frozenset(canonical(name) for name in revocations.issuers(lists)),
        )
    except (ValueError, IndexError):  # OpenSSL reads more than this program
        return Fit()


def canonical(raw: bytes) -> Name:
    """Return a name so that it is equal to another one if it is so for OpenSSL.

    Neither the kind of text counts nor the case of ASCII letters nor how many spaces there are.

    Args:
        raw: the attributes in DER.

    Raises:
        ValueError, IndexError: it is no name.
    """
    return tuple(
        frozenset(_attribute(one) for _, one in fields(attributes)) for _, attributes in fields(raw)
    )


def _attribute(raw: bytes) -> tuple[bytes, object]:
    (_, kind), (tag, value) = fields(raw)
    codec = _CODECS.get(tag)
    if codec is None:
        return kind, (tag, value)
    return kind, b" ".join(value.decode(codec).encode().split()).lower()
