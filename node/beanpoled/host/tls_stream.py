"""TLS on one connection, between its socket and an ordinary protocol.

It replaces the event loop's TLS: a client's command is one small record each way, and for that the
loop's implementation costs more than the cipher. It tries to read more after each record, until
OpenSSL raises an exception, and reads into 256 KiB. `trust.certificates` decides which clients may
connect; `trust.handshakes` bounds the handshakes.
"""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast

from beanpoled.trust.standing import Standing

# The maximum of plain bytes in a record.
RECORD_BYTES_MAX: Final = 16 * 1024
# OpenSSL takes all records that it is given before it returns, so it is given no more at once: a
# record of 27 bytes that renews keys costs 10 us. Output is encrypted in slices of this size, too:
# OpenSSL keeps a buffer of the largest size that it ever had, until the connection ends.
SLICE_BYTES: Final = 2 * RECORD_BYTES_MAX
# Input without a byte for the protocol above, after which others have a turn: it is longer than an
# incomplete record.
SILENT_ROW_BYTES: Final = RECORD_BYTES_MAX + RECORD_BYTES_MAX // 4
# Input that may pass without a byte for the protocol above. One record may be incomplete; new keys
# are due after gigabytes.
SILENT_BYTES_MAX: Final = 4 * RECORD_BYTES_MAX

# Records of one connection that are taken before others have a turn: each costs some 10 us, however
# short it is, and a read has 11,000 records of one byte. Those of a large body are full.
RECORDS_IN_A_ROW_MAX: Final = 64
# Connections with more than that which have a turn in one step of the loop, for 5 ms or so.
TURNS_IN_A_STEP: Final = 8

# X509_V_ERR_CERT_HAS_EXPIRED and X509_V_ERR_UNSPECIFIED of OpenSSL.
_CERTIFICATE_EXPIRED: Final = 10
_CERTIFICATE_UNREADABLE: Final = 1


class TurnLine:
    """The connections of a listening socket that have sent many records, first come first served.

    A few of them have a turn in each step of the loop, however many there are.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """Begin with an empty line."""
        self._call_soon = call_soon
        self._line: deque[Callable[[], None]] = deque()

    def join(self, go_on: Callable[[], None]) -> None:
        """Call this once, when it is its turn; then it may join again."""
        if not self._line:
            self._call_soon(self._step)
        self._line.append(go_on)

    def _step(self) -> None:
        for _ in range(min(len(self._line), TURNS_IN_A_STEP)):
            self._line[0]()  # what joins meanwhile need not call for a step
            self._line.popleft()
        if self._line:
            self._call_soon(self._step)


class TlsTransport:
    """The transport of the protocol above: an `asyncio.Transport` in all but name."""

    def __init__(self, stream: "TlsStream", below: asyncio.Transport) -> None:
        self._stream = stream
        self._below = below

    def write(self, data: bytes) -> None:
        """Encrypt and send."""
        if data:
            self._stream.send(data)

    def close(self) -> None:
        """Send the end of the stream, and close when everything is sent."""
        self._stream.close()

    def abort(self) -> None:
        """Close now."""
        self._below.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closing or closed."""
        return self._below.is_closing()

    def is_reading(self) -> bool:
        """Whether data is passed on."""
        return not self._stream.paused and not self._below.is_closing()

    def pause_reading(self) -> None:
        """Stop passing data on, and stop reading from the socket."""
        self._stream.paused = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """Pass data on again, beginning with data that has already arrived."""
        self._stream.resume()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the limits of the encrypted output buffer."""
        self._below.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        """Return the size of the encrypted output buffer."""
        return self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return a property of the socket, or `peercert`."""
        if name == "peercert":
            return self._stream.peer_certificate()
        return self._below.get_extra_info(name, default)


class TlsStream:
    """The protocol of the socket: an `asyncio.Protocol` in all but name.

    Attributes:
        established: done when the handshake is over, with the error if it failed.
        heard: whether the other side has sent anything.
        paused: whether the protocol above accepts no data now.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: ssl.SSLContext,
        make: Callable[[], asyncio.Protocol],
        name: str | None = None,
        line: TurnLine | None = None,
        standing: Standing | None = None,
    ) -> None:
        """Begin.

        Args:
            loop: of the node.
            context: of a server, or of a client if there is a name.
            make: makes the protocol behind the handshake.
            name: the name that the other side's certificate must have; None: this is the server.
            line: where the other side waits for its turn when it sends many records; without it,
                all of them are taken at once.
            standing: knows the connection while it is established.
        """
        self.established: asyncio.Future[None] = loop.create_future()
        self.heard = False
        self.paused = False
        self._is_given_up = False  # before the handshake was over
        self._has_ended = False  # the other side sends nothing more
        self._shown: Any = None  # the other side's certificate
        self._is_cut = False  # the socket has no more input; some may wait here to be taken
        self._line = line
        self._standing = standing
        self._is_waiting = False  # in the line
        self._left = RECORDS_IN_A_ROW_MAX  # records of this turn
        self._rest = b""  # received bytes that OpenSSL has not been given
        self._silent_bytes = 0  # of input since the last byte for the protocol above
        self._loop = loop
        self._make = make
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=name is None, server_hostname=name
        )
        # Each is called for every record, and the attribute lookups would be a noticeable part of
        # the cost.
        self._feed = self._incoming.write
        self._drain = self._outgoing.read
        self._decrypt = self._tls.read
        self._encrypt = self._tls.write
        self._below: asyncio.Transport | None = None
        self._above: asyncio.Protocol | None = None

    # --- of the socket ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._below = cast(asyncio.Transport, transport)
        if self._is_given_up:
            self._abort()
            return
        self._handshake()  # the client speaks first

    def data_received(self, data: bytes) -> None:
        if self._has_ended:  # nothing reads it: kept, it would grow as long as the other side likes
            return
        if len(data) <= SLICE_BYTES and not (self._is_waiting or self._rest):
            self._left = RECORDS_IN_A_ROW_MAX
            self._take(data)
            return
        self._rest += data
        if not self._is_waiting:
            self._go_on()

    def _take(self, data: bytes) -> None:
        self._feed(data)
        if self._above is None:
            self.heard = True
            self._handshake()
        if self._above is not None:
            self._read(self._above)

    def eof_received(self) -> bool:
        self._is_cut = True
        self._end_if_cut()
        return self._above is not None and self._below is not None and not self._below.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._above is not None:
            self._above.connection_lost(exc)
            self._above = None  # breaks a reference cycle
            if self._standing is not None:
                self._standing.forget(self)
        elif not self.established.done():
            self._fail(exc or ConnectionResetError("closed in the handshake"))

    def pause_writing(self) -> None:
        if self._above is not None:
            self._above.pause_writing()

    def resume_writing(self) -> None:
        if self._above is not None:
            self._above.resume_writing()

    # --- of the protocol above ---

    def send(self, data: bytes) -> None:
        """Encrypt and send."""
        below = self._below
        if below is None or below.is_closing():
            return
        try:
            if len(data) <= SLICE_BYTES:
                self._encrypt(data)
                sealed = self._drain()
            else:
                sealed = self._encrypt_slices(data)
        except ssl.SSLError:
            self._abort()
            return
        below.write(sealed)

    def _encrypt_slices(self, data: bytes) -> bytes:
        pieces: list[bytes] = []
        for place in range(0, len(data), SLICE_BYTES):
            self._encrypt(data[place : place + SLICE_BYTES])
            pieces.append(self._drain())
        return b"".join(pieces)

    def resume(self) -> None:
        """Pass on data that arrived during the pause, and read again."""
        self.paused = False
        if not self._is_waiting:
            if self._below is not None:
                self._below.resume_reading()
            self._loop.call_soon(self._read_more)

    def close(self) -> None:
        """Send the end of the stream, and close when everything is sent."""
        below = self._below
        if below is None or below.is_closing():
            return
        with suppress(ssl.SSLError):  # the other side has not sent its own end yet
            self._tls.unwrap()
        self._flush()
        below.close()

    def peer_certificate(self) -> Any:
        """Return the other side's certificate, as `ssl` does."""
        return self._shown

    def end(self) -> None:
        """Close the connection now."""
        self._abort()

    def give_up(self) -> bool:
        """Abort a handshake, also one that has no socket yet; no effect on a finished one.

        Returns:
            Whether it was not finished.
        """
        if self._above is not None:
            return False
        self._is_given_up = True
        self._abort()
        return True

    # --- within ---

    def _handshake(self) -> None:
        if self.established.done():
            return
        try:
            self._tls.do_handshake()
            self._shown = _certificate(self._tls)  # a connection that has failed does not tell it
            if self._tls.session_reused:
                _check_again(self._shown)
        except ssl.SSLWantReadError:
            self._flush()
            return
        except Exception as error:  # whatever the other side has sent must not end the node
            self._flush()  # sends the alert
            self._fail(error)
            if self._below is not None:
                self._below.close()
            return
        self._flush()
        assert self._below is not None
        # A list is named at the start of the node or never: without it, nothing asks for this.
        certificate = None if self._standing is None else self._tls.getpeercert(True)
        self.established.set_result(None)
        self._above = self._make()
        self._above.connection_made(cast(asyncio.Transport, TlsTransport(self, self._below)))
        if self._standing is not None:
            self._standing.add(self, certificate)

    def _fail(self, error: Exception) -> None:
        self.established.set_exception(error.with_traceback(None))  # its frames refer to this
        self.established.exception()  # marks the error as handled: nothing may await it any more

    def _read_more(self) -> None:
        if self._above is not None and not self._is_waiting:
            self._go_on()

    def _wait(self) -> None:
        """Let others have a turn, if there is more to take."""
        if self._line is not None and not self._is_waiting and self._below is not None:
            self._is_waiting = True
            self._below.pause_reading()
            self._line.join(self._have_turn)

    def _have_turn(self) -> None:
        self._is_waiting = False
        below = self._below
        if below is None or below.is_closing():
            return
        self._go_on()
        if not (self._is_waiting or self.paused or below.is_closing()):
            below.resume_reading()

    def _go_on(self) -> None:
        """Take what has been received, up to a row of records."""
        self._left = RECORDS_IN_A_ROW_MAX
        if self._above is not None:
            self._read(self._above)
        while self._rest and not (self._is_waiting or self.paused):
            if self._below is None or self._below.is_closing():
                return
            piece, self._rest = self._rest[:SLICE_BYTES], self._rest[SLICE_BYTES:]
            self._take(piece)
            if self._rest and self._left <= 0:
                self._wait()
        self._end_if_cut()

    def _read(self, above: asyncio.Protocol) -> None:
        """Pass on every complete record; without input, OpenSSL is not called.

        Each is read as a whole, so that OpenSSL keeps no decrypted bytes.
        """
        below = self._below
        assert below is not None
        while self._incoming.pending and not self.paused and not self._has_ended:
            before = self._incoming.pending
            try:
                data = self._decrypt(RECORD_BYTES_MAX)
            except ssl.SSLWantReadError:  # an incomplete record, or records without data
                self._silent_bytes += before
                if self._silent_bytes > SILENT_BYTES_MAX:
                    self._abort()
                    return
                if self._silent_bytes > SILENT_ROW_BYTES:
                    self._wait()
                break
            except ssl.SSLError:
                self._abort()
                return
            if not data:  # the other side has sent the end of its stream
                self._end(above)
                return
            self._silent_bytes = 0
            above.data_received(data)
            if below.is_closing():
                return
            self._left -= 1
            if self._left <= 0 and self._line is not None:
                if self._incoming.pending:
                    self._wait()
                break
        if self._outgoing.pending:  # an answer of TLS itself, such as to new keys
            self._flush()

    def _end(self, above: asyncio.Protocol) -> None:
        """Pass on that the other side sends nothing more; it may still wait for replies."""
        self._has_ended = True
        self._rest = b""
        if not above.eof_received():
            self.close()

    def _end_if_cut(self) -> None:
        """Pass the end of the socket's input on, behind all input that waits for its turn."""
        above, below = self._above, self._below
        if not self._is_cut or self._has_ended or self._rest or self._incoming.pending:
            return
        if above is not None and below is not None and not below.is_closing():
            self._end(above)

    def _flush(self) -> None:
        if self._outgoing.pending and self._below is not None and not self._below.is_closing():
            self._below.write(self._outgoing.read())

    def _abort(self) -> None:
        if self._below is not None and not self._below.is_closing():
            self._below.abort()


def _certificate(tls: ssl.SSLObject) -> Any:
    """Return the other side's certificate, as `ssl` does.

    Raises:
        ssl.SSLCertVerificationError: `ssl` cannot read it. A CA may sign names of any bytes, which
            OpenSSL takes.
    """
    try:
        return tls.getpeercert()
    except (ValueError, ssl.SSLError) as failure:
        raise _refusal("certificate cannot be read", _CERTIFICATE_UNREADABLE) from failure


def _check_again(certificate: Any) -> None:
    """Check the time of a certificate that an earlier handshake verified.

    TLS 1.2 resumes sessions by their ids, which `ssl` cannot switch off.

    Raises:
        ssl.SSLCertVerificationError: it has expired meanwhile.
    """
    if certificate and ssl.cert_time_to_seconds(certificate["notAfter"]) < time.time():
        raise _refusal("certificate has expired", _CERTIFICATE_EXPIRED)


def _refusal(words: str, code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(words)
    error.verify_code, error.verify_message = code, words
    return error
