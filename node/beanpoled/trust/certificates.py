"""The certificates of this node, reread when their files change: TLS contexts for new connections.

Established connections keep the certificates that they began with, until one is revoked
(`standing`). No socket is opened here; refused handshakes are counted and reported in `handshakes`,
and `rereading` looks at the files periodically.
"""

import os
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from beanpole.client.expiry import Span, certificates
from beanpole.client.tls_files import why
from beanpole.errors import ConfigurationError
from beanpoled.config.tls import TlsConfig
from beanpoled.trust import revocations
from beanpoled.trust.authorities import Fit, Name, canonical, fit
from beanpoled.trust.handshakes import NO_CRL, reason_of
from beanpoled.trust.regular_files import read_regular
from beanpoled.trust.standing import Standing
from beanpoled.trust.validity import fault_of, spans_of

# Required contents of files of trusted certificates: the key in `SSLContext.cert_store_stats`.
_KINDS: Final = {"ca": ("x509", "certificate"), "crl": ("crl", "list of revoked certificates")}
# A resumed session verifies nothing again, neither the time of a certificate or its CA nor the list
# of revoked ones, and neither `ssl` nor gRPC can switch sessions off. New contexts know no earlier
# session, so they are made this often; it costs some milliseconds.
SESSIONS_S: Final = 60.0
# OpenSSL's codes of a certificate whose CA has no list, or has not signed the one of its name.
_OF_NO_LIST: Final = (3, 8)
STAY: Final = "the certificates that were read before stay in use"
# Time, inode and size of a file; None if it cannot be found.
Stamp = tuple[int, int, int] | None
# A handshake takes two flights of each side at most, in TLS 1.2.
_FLIGHTS: Final = 3


class Files(NamedTuple):
    """The paths of the files, and the prefix of their settings; an empty path means no file.

    Attributes:
        setting: the prefix of the settings: "tls_" or "peer_tls_".
        certificate: of this node, with the chain that leads to the CA.
        key: its private key.
        ca: of the certificates that the other side must show; empty: it needs none.
        crl: the CA's list of revoked certificates.
        name: that other nodes require in this node's certificate; empty for clients, whose CA may
            be another one.
    """

    setting: str
    certificate: str
    key: str
    ca: str
    crl: str
    name: str = ""


class Pem(NamedTuple):
    """The contents of the files, as gRPC needs them."""

    key: bytes
    certificate: bytes
    ca: bytes


class _Listing(NamedTuple):
    """The CAs that have made the lists of revoked certificates.

    Attributes:
        fault: why certificates of clients are refused; empty if nothing is known of that.
        fit: the names in the files.
        valid: when the lists are valid, by the names of the CAs; empty if that is unknown.
    """

    fault: str = ""
    fit: Fit = Fit()
    valid: Mapping[bytes, Span] = MappingProxyType({})


_Contexts = tuple[ssl.SSLContext, ssl.SSLContext, Pem]


class Found(NamedTuple):
    """The files as `look` has found them.

    Attributes:
        before: the stamps that were known when the look began.
        stamps: of the files, from before they were read.
        refusal: why the files stay out of use; empty if nothing is against them.
        contexts: of the server and of the client, and the contents; None if there are no new ones.
        judged: what is in new files; None for new contexts of the files in use.
    """

    before: list[Stamp]
    stamps: list[Stamp]
    refusal: str = ""
    contexts: _Contexts | None = None
    judged: tuple[dict[str, list[Span]], _Listing] | None = None


def of_clients(config: TlsConfig) -> "Certificates | None":
    """Return the certificates for clients; None if clients do not use TLS."""
    if not config.has_client_tls:
        return None
    paths = (config.tls_certificate_file, config.tls_key_file)
    return Certificates(Files("tls_", *paths, config.tls_client_ca_file, config.tls_crl_file))


def of_peers(config: TlsConfig, name: str) -> "Certificates | None":
    """Return the certificates for other nodes; None if nodes do not use TLS."""
    if not config.has_peer_tls:
        return None
    paths = (config.peer_tls_certificate_file, config.peer_tls_key_file)
    return Certificates(
        Files("peer_tls_", *paths, config.peer_tls_ca_file, config.peer_tls_crl_file, name)
    )


class Certificates:
    """One set of files as it was last read.

    Attributes:
        setting: the prefix of its settings, as in `Files`.
        server: the context for incoming connections.
        client: the context for connections to other nodes, whose names are verified.
        generation: how often new files were loaded.
        refusal: why the files, as they are now, are not in use; empty if they are.
        standing: the connections whose certificates may be revoked; None without a list.
        ends_s: when what is in each file ends, by setting, in seconds since 1970.
        reading: the path of the file that was looked at last, or is looked at now.
    """

    def __init__(
        self,
        files: Files,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """Read the files.

        Args:
            files: their paths.
            clock: seconds that only grow.
            wall: the wall clock.

        Raises:
            ConfigurationError: a file cannot be read or does not fit; the message names the
                setting.
        """
        self.setting = files.setting
        self._files = files
        self._clock = clock
        self._wall = wall
        self._read_s = clock()
        self.generation = 0
        self.refusal = ""
        self.reading = ""
        self.standing = Standing(files.crl) if files.crl else None
        self._known = self._stamps()
        self.server, self.client, self.pem = self._read()
        self._use(self._spans(), self._judged(self.server))

    def refresh(self, is_asked: bool = False) -> str | None:
        """Read the files again, as `look` does, and use what was found.

        Returns:
            See `take`.
        """
        return self.take(self.look(is_asked), is_asked)

    def look(self, is_asked: bool = False) -> Found:
        """Read the files again if they changed, or if they were refused; use nothing of them yet.

        Files that have not changed since may be good now: the system had no descriptor to open
        them, or a certificate was not valid yet.

        A file system may take as long as it likes to answer, and any thread may call this.

        Args:
            is_asked: whether an operator asks: then the files are read in any case.
        """
        before, stamps = self._known, self._stamps()
        if stamps == before and not self.refusal and not is_asked:
            return Found(before, stamps, contexts=self._without_sessions(stamps))
        try:
            fresh, spans = self._read(), self._spans()
            listing = self._judged(fresh[0])
            self._check_times(spans, listing)
            self._check_list(listing)
            if (fault := self._fault(*fresh[:2])) and not self.fault():
                raise ConfigurationError(fault)
        except ConfigurationError as error:
            return Found(before, stamps, f"{STAY}: {error}")
        return Found(before, stamps, "", fresh, (spans, listing))

    def take(self, found: Found, is_asked: bool = False) -> str | None:
        """Use what a look has found, unless another one that began later was taken meanwhile.

        Args:
            found: by `look`.
            is_asked: whether a refusal is told although it was told before.

        Returns:
            The line to log: that new files are in use, or the `ConfigurationError` that keeps the
            old ones in use. None if nothing changed.
        """
        if found.before is not self._known:
            return None
        self._known = found.stamps
        if found.refusal:
            told, self.refusal = self.refusal, found.refusal
            return self.refusal if is_asked or self.refusal != told else None
        if found.contexts is not None:
            self.server, self.client, self.pem = found.contexts
            self._read_s = self._clock()
        if found.judged is None:
            return None
        self.refusal = ""
        self._use(*found.judged)
        self.generation += 1
        words = f"{self._files.setting}certificate_file and what belongs to it was read again"
        return "; ".join((words, *self.time_faults(), *filter(None, [self.list_fault()])))

    def _without_sessions(self, stamps: list[Stamp]) -> _Contexts | None:
        """Make new contexts of the same files, if the present ones are old and verify clients."""
        if not self._files.ca or self._clock() < self._read_s + SESSIONS_S:
            return None
        # Files that change just now are judged the next time.
        with suppress(ConfigurationError):
            made = self._read()
            return made if self._stamps() == stamps else None
        return None

    def _use(self, spans: dict[str, list[Span]], listing: _Listing) -> None:
        self._valid = spans
        self._listing = listing
        self.ends_s = {name: [span.end_s for span in found] for name, found in spans.items()}

    def _check_times(self, fresh: dict[str, list[Span]], listing: _Listing) -> None:
        """Keep files in use that are valid, in place of new ones that are not.

        An expired list of revoked certificates that is newer than the one in use is no reason: it
        may revoke more.

        Raises:
            ConfigurationError: a new file has expired, or is not valid yet.
        """
        faults, before = self._time_faults(fresh), self._time_faults(self._valid)
        valid, used = listing.valid, self._listing.valid
        if valid and revocations.are_newer(valid, used, self._wall()):
            faults.pop(self._name("crl"), None)
        for setting, words in faults.items():
            if setting not in before:
                raise ConfigurationError(words)

    def time_faults(self) -> list[str]:
        """Return which files in use have expired, or are not valid yet."""
        return list(self._time_faults(self._valid).values())

    def _time_faults(self, spans: dict[str, list[Span]]) -> dict[str, str]:
        now_s, paths = self._wall(), self._named()
        return {
            setting: f"{setting} = {paths[setting]!r} {words}"
            for setting, found in spans.items()
            if (words := fault_of(found, now_s))
        }

    def fault(self) -> str:
        """Return why other nodes would refuse this one now; empty if nothing is known of that."""
        return self._fault(self.server, self.client)

    def list_fault(self) -> str:
        """Return why the list in use lets no client of a CA in the file in; empty if unknown.

        An intermediate CA, known only to clients, may have signed it all the same. A list that has
        expired is reported by `validity`, and the list of nodes by `fault`.
        """
        return self._listing.fault

    def _check_list(self, fresh: _Listing) -> None:
        """Keep a list in use that is of a CA of clients, in place of one that is of none.

        Where the list in use is of an intermediate CA alone, which only clients show, another one
        of that CA is no worse.

        Raises:
            ConfigurationError: the new list lets no client in that the one in use lets in.
        """
        used = self._listing
        is_no_worse = used.fit.has_no_list and fresh.fit.shares_with(used.fit)
        if fresh.fault and not used.fault and not is_no_worse:
            raise ConfigurationError(fresh.fault)

    def _judged(self, server: ssl.SSLContext) -> _Listing:
        """Judge the list in a context of this node, and in the files that it was made of."""
        files = self._files
        if files.name or not files.crl:
            return _Listing()
        client = self._own_context(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_mode = ssl.CERT_NONE
        # The node's own certificate shows it if it is of the same CA as those of clients.
        error = _refusal(server, client, None)
        try:
            found, valid = fit(files.ca, files.crl), revocations.valid_spans(files.crl)
            if getattr(error, "verify_code", 0) in _OF_NO_LIST:
                found = found.without(_issuer_of(files.certificate))
        except OSError as failure:
            paths = {path: setting for setting, path in self._named().items()}
            path = failure.filename if failure.filename in paths else files.crl
            raise _unreadable(paths[path], path, failure) from failure
        if error is None or not found.has_no_list:
            return _Listing("", found, valid)
        words = f"{self._name('crl')} = {files.crl!r} is of no CA in {self._name('ca')}"
        words += f" = {files.ca!r}: certificates of these are refused"
        return _Listing(
            f"{words}; if it is of an intermediate CA, add that one there", found, valid
        )

    def _fault(self, server: ssl.SSLContext, client: ssl.SSLContext) -> str:
        """Let a node with these contexts shake hands with itself, in memory."""
        name = self._files.name
        error = _refusal(server, client, name) if name else None
        if error is None:
            return ""
        if reason_of(error) == NO_CRL:
            words = f"{self._name('crl')} = {self._files.crl!r}: with it other nodes would refuse"
            return f"{words} this one: {why(error)}"
        words = f"{self._name('certificate')} = {self._files.certificate!r}"
        return f"{words}: other nodes would refuse it: {why(error)}"

    def _stamps(self) -> list[Stamp]:
        """Return the stamp of each file; files in Kubernetes are links that move."""
        found: list[Stamp] = []
        for path in self._paths():
            self.reading = path
            try:
                stat = os.stat(path)
            except OSError:
                found.append(None)
            else:
                found.append((stat.st_mtime_ns, stat.st_ino, stat.st_size))
        return found

    def _paths(self) -> Sequence[str]:
        files = self._files
        return [path for path in (files.certificate, files.key, files.ca, files.crl) if path]

    def _named(self) -> dict[str, str]:
        """Return the paths of the files that have an end, by the settings that name them."""
        files = self._files
        paths = {"certificate": files.certificate, "ca": files.ca, "crl": files.crl}
        return {self._name(part): path for part, path in paths.items() if path}

    def _spans(self) -> dict[str, list[Span]]:
        found = {}
        for setting, path in self._named().items():
            self.reading = path
            try:
                found[setting] = spans_of(setting, path)
            except OSError as error:
                raise _unreadable(setting, path, error) from error
        return found

    def _read(self) -> _Contexts:
        files = self._files
        server = self._context(ssl.PROTOCOL_TLS_SERVER)
        client = self._context(ssl.PROTOCOL_TLS_CLIENT)
        if files.ca:
            server.verify_mode = ssl.CERT_REQUIRED
        # A resumed session verifies no certificate: one that has expired since, or whose list of
        # revoked ones has, would be accepted for as long as its client renews its ticket.
        server.num_tickets = 0
        server.options |= ssl.OP_NO_TICKET
        # OpenSSL before 3.0 lets clients of TLS 1.2 ask for one handshake after the other.
        server.options |= ssl.OP_NO_RENEGOTIATION
        parts = (self._bytes(part) for part in ("key", "certificate", "ca"))
        return server, client, Pem(*parts)

    def _context(self, kind: Any) -> ssl.SSLContext:
        context = self._own_context(kind)
        for part in ("ca", "crl"):
            path = getattr(self._files, part)
            if path:
                self._bytes(part)
                before = context.cert_store_stats()
                try:
                    context.load_verify_locations(path)
                except (ssl.SSLError, OSError) as error:
                    raise ConfigurationError(
                        f"{self._name(part)} = {path!r} cannot be used: {why(error)}"
                    ) from error
                kind, words = _KINDS[part]
                if context.cert_store_stats()[kind] == before[kind]:
                    raise ConfigurationError(f"{self._name(part)} = {path!r} has no {words}")
        if self._files.crl:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return context

    def _own_context(self, kind: Any) -> ssl.SSLContext:
        """Return a context with the node's own certificate, which verifies none."""
        files = self._files
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        self._bytes("certificate")
        self._bytes("key")
        try:
            context.load_cert_chain(files.certificate, files.key, password=self._no_password)
        except (ssl.SSLError, OSError) as error:
            raise ConfigurationError(
                f"{files.setting}certificate_file = {files.certificate!r} and {files.setting}"
                f"key_file = {files.key!r} do not make a certificate with its key: {why(error)}"
            ) from error
        return context

    def _no_password(self) -> str:
        """Raise: OpenSSL would prompt for the password at the terminal and block the node."""
        raise ConfigurationError(
            f"{self._name('key')} = {self._files.key!r} is encrypted: a node cannot be asked for "
            "its password; let the file system protect it"
        )

    def _name(self, part: str) -> str:
        is_clients = part == "ca" and self._files.setting == "tls_"
        return f"{self._files.setting}{'client_' if is_clients else ''}{part}_file"

    def _bytes(self, part: str) -> bytes:
        path = getattr(self._files, part)
        if not path:
            return b""
        self.reading = path
        try:
            return read_regular(path)[0]
        except OSError as error:
            raise _unreadable(self._name(part), path, error) from error


def _unreadable(setting: str, path: str, error: OSError) -> ConfigurationError:
    return ConfigurationError(f"{setting} = {path!r} cannot be read: {error.strerror}")


def _issuer_of(certificate: str) -> Name:
    """Return the name of the CA of the first certificate in a file; no CA's if not understood."""
    try:
        return canonical(revocations.identity(certificates(certificate)[0])[0])
    except (ValueError, IndexError):
        return ()


def _refusal(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str | None
) -> ssl.SSLError | None:
    """Let two contexts shake hands in memory; return why one refuses the other."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(back, there, server_hostname=name),
        server.wrap_bio(there, back, server_side=True),
    )
    for _ in range(_FLIGHTS):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                return error
    return None


def names_in(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the DNS names in a verified certificate, in the form of `ssl`.

    A node's own name is its id.
    """
    names = certificate.get("subjectAltName", ())
    return frozenset(name for kind, name in names if kind == "DNS")


def shown_name(certificate: Mapping[str, Any]) -> str:
    """Return the name that the audit log shows: the first DNS name, else the common name.

    Nothing is decided by it: rules compare the DNS names only.
    """
    for kind, name in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            return str(name)
    for part in certificate.get("subject", ()):
        for kind, name in part:
            if kind == "commonName":
                return str(name)
    return ""
