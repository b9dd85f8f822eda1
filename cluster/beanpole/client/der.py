"""DER, as far as certificates and lists of revoked ones need it (RFC 5280).

`expiry`, and `trust.revocations` of the nodes, interpret the fields.
"""

# A value's tag, and its bytes.
Field = tuple[int, bytes]


def fields(raw: bytes) -> list[Field]:
    """Split DER into its values.

    Raises:
        IndexError: it ends within the tag or the size of one.
        ValueError: it ends within the bytes of one.
    """
    found: list[Field] = []
    at = 0
    while at < len(raw):
        tag, size = raw[at], raw[at + 1]
        at += 2
        if size & 0x80:
            more = size & 0x7F
            size = int.from_bytes(raw[at : at + more], "big")
            at += more
        if size > len(raw) - at:
            raise ValueError(f"{len(raw) - at} bytes of {size}")
        found.append((tag, raw[at : at + size]))
        at += size
    return found


def signed(raw: bytes, version_tag: int) -> list[Field]:
    """Return what the issuer of a certificate or a list has signed, without the version.

    The version is optional, and the positions of the other fields are counted without it.

    Raises:
        ValueError, IndexError: it is neither.
    """
    (_, whole), *_ = fields(raw)
    (_, inner), *_ = fields(whole)
    return [one for one in fields(inner) if one[0] != version_tag]
