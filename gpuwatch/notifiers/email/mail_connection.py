"""smtplib's client with one deadline: connecting, greeting, STARTTLS, login, and every byte of every reply.

And mail addresses: as the settings give them, in a header, and in the envelope.
"""

from __future__ import annotations

import io
import re
import smtplib
import socket
import ssl
from collections.abc import Callable
from email.headerregistry import Address
from email.utils import getaddresses, parseaddr
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer


_SERVER_TIMEOUT_S = 10.0  # longest silence of a server
_CONNECT_TIMEOUT_S = 3.0  # after this a silent address (IPv6 without a route) is abandoned for the next one
_CHUNK_BYTES = 16_384  # one TLS record: the longest part that a single send can block on


class BoundedSmtp(smtplib.SMTP):
    """A connection whose waits all end at `ends_at`.

    smtplib's own timeout applies to one read: a server that sends a byte every few seconds blocks it forever, even
    during the greeting, which smtplib reads in its constructor.

    Args:
        tls: to use TLS from the first byte; None: plain text until `starttls`.
        own_name: the name in EHLO.
        ends_at: on `monotonic`; each further mail on an open connection sets a later one.

    Raises:
        OSError, smtplib.SMTPException: no connection, or no greeting.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls: ssl.SSLContext | None,
        own_name: str,
        ends_at: float,
        monotonic: Callable[[], float],
    ) -> None:
        self.ends_at = ends_at
        self._tls = tls
        self._monotonic = monotonic
        super().__init__(host, port, own_name)

    def getreply(self) -> tuple[int, bytes]:
        """Return the server's reply, read until `ends_at`."""
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_BoundedReader(self.sock, self._wait_s))
        reply = super().getreply()
        if self.sock is not None:  # a TLS handshake that follows uses the socket's timeout
            self.sock.settimeout(max(self.ends_at - self._monotonic(), 0.001))
        return reply

    def send(self, s: ReadableBuffer | str) -> None:
        """Send everything until `ends_at`: a server that does not read blocks nothing."""
        content = memoryview(s.encode(self.command_encoding) if isinstance(s, str) else s)
        for start in range(0, len(content), _CHUNK_BYTES):
            if self.sock is not None:
                self.sock.settimeout(self._wait_s())
            super().send(content[start : start + _CHUNK_BYTES])

    def _get_socket(self, host: str, port: int, timeout: float | None) -> socket.socket:
        """Connect; smtplib calls this. `timeout` is ignored in favour of `ends_at`."""
        connection = self._connect(host, port)
        if self._tls is None:
            return connection
        connection.settimeout(self._wait_s())
        return self._tls.wrap_socket(connection, server_hostname=host)

    def _connect(self, host: str, port: int) -> socket.socket:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        *addresses, last_address = dict.fromkeys(str(address[0]) for *_, address in infos)
        for address in addresses:
            try:
                return socket.create_connection((address, port), min(self._wait_s(), _CONNECT_TIMEOUT_S))
            except OSError:
                continue
        return socket.create_connection((last_address, port), self._wait_s())

    def _wait_s(self) -> float:
        """Return the time for the next step. Raises TimeoutError: no time is left."""
        left_s = self.ends_at - self._monotonic()
        if left_s <= 0:
            raise TimeoutError("the deadline has passed")
        return min(left_s, _SERVER_TIMEOUT_S)


class _BoundedReader(io.RawIOBase):
    """Reads a socket, each time with the remaining time."""

    def __init__(self, sock: socket.socket, wait_s: Callable[[], float]) -> None:
        self._sock = sock
        self._wait_s = wait_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._sock.settimeout(self._wait_s())
        return self._sock.recv_into(buffer)


# --- addresses --------------------------------------------------------------------------------------------------------


_ADDRESS = re.compile(r'[^\s@,;:<>()"\\]+@[^\s@,;<>()"\\]+')


def parse_address(value: object) -> str:
    """One address, with or without a name. Raises ValueError.

    Several in one text are an error: the server would get only the first.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError('expected a mail address, such as "me@example.org"')
    found = [address for _, address in getaddresses([value])]
    if len(found) > 1:
        raise ValueError("expected one mail address in each text, and a name with a comma in quotes")
    if not _ADDRESS.fullmatch(found[0]):
        raise ValueError('expected a mail address, such as "me@example.org"')
    try:
        envelope_address(value)
    except UnicodeError:
        raise ValueError("expected a domain name behind the @ of the mail address") from None
    return value.strip()


def envelope_address(text: str) -> str:
    """The address alone; a domain in other letters as DNS has it, so that every server accepts it."""
    local, at, domain = parseaddr(text)[1].rpartition("@")
    return f"{local}{at}{_in_dns(domain)}"


def header_address(text: str) -> Address:
    """Name and address for a header, which encodes the name if it is not ASCII."""
    name, address = parseaddr(text)
    local, at, domain = address.rpartition("@")
    return Address(name, username=local, domain=_in_dns(domain)) if at else Address(name, username=address)


def _in_dns(domain: str) -> str:
    return domain if domain.isascii() else domain.encode("idna").decode("ascii")
