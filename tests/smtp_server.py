"""A real SMTP server on loopback (aiosmtpd): plain, STARTTLS or TLS, with logins, greylisting, refusals and hangs."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

import trustme
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


@dataclass
class Mailbox:
    """Received mails, and faults to inject."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)  # of each mail, in the envelope
    in_tls: list[bool] = field(default_factory=list)
    connections: int = 0
    logins: list[tuple[str, str, bool]] = field(default_factory=list)  # name, password, under TLS
    answers: dict[str, list[str]] = field(default_factory=dict)  # recipient → replies to RCPT, in turn
    to_data: list[str] = field(default_factory=list)  # replies to DATA, in turn
    hangs: bool = False  # DATA is never answered
    released: threading.Event = field(default_factory=threading.Event)

    def texts(self) -> list[str]:
        """Return the plain part of each mail."""
        return [_part(mail, "plain") for mail in self.mails]


def _part(mail: EmailMessage, subtype: str) -> str:
    body = mail.get_body((subtype,))
    assert body is not None
    return str(body.get_content())


class _Handler:
    def __init__(self, box: Mailbox, tls_from_the_start: bool) -> None:
        self.box = box
        self.tls_from_the_start = tls_from_the_start

    async def handle_EHLO(
        self, _server: SMTP, session: Session, _envelope: Envelope, hostname: str, responses: list[str]
    ) -> list[str]:
        self.box.connections += session.ssl is None  # after STARTTLS it greets a second time
        session.host_name = hostname
        return responses

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _options: list[str]
    ) -> str:
        script = self.box.answers.get(address, [])
        said = script.pop(0) if script else "250 OK"
        if said.startswith("250"):
            envelope.rcpt_tos.append(address)
        return said

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:
        while self.box.hangs and not self.box.released.is_set():
            await asyncio.sleep(0.02)
        said = self.box.to_data.pop(0) if self.box.to_data else "250 taken"
        if said.startswith("250"):
            assert isinstance(envelope.content, bytes)
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            self.box.mails.append(mail)
            self.box.recipients.append(list(envelope.rcpt_tos))
            self.box.in_tls.append(self.tls_from_the_start or session.ssl is not None)
        return said


def a_ca() -> trustme.CA:
    """A certificate authority of this test."""
    return trustme.CA()


def trusting(ca: trustme.CA) -> ssl.SSLContext:
    """Return a client's context that trusts it."""
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


@contextmanager
def smtp_server(
    security: str = "none",
    ca: trustme.CA | None = None,
    password: str | None = None,
    names: tuple[str, ...] = ("127.0.0.1", "localhost"),
    utf8: bool = True,
) -> Iterator[Mailbox]:
    """Run a server until the block ends.

    Args:
        password: logins are offered, and must use it.
        names: host names of its certificate.
        utf8: whether it takes addresses outside ASCII (SMTPUTF8).
    """
    box = Mailbox()
    options: dict[str, Any] = {"auth_require_tls": security == "starttls", "enable_SMTPUTF8": utf8}
    if password is None:
        options |= {"auth_exclude_mechanism": ["LOGIN", "PLAIN"]}
    else:
        options |= {"authenticator": _checks(box, password, security == "tls"), "auth_required": security == "starttls"}
    server_tls = _server_tls(ca or a_ca(), names) if security != "none" else None
    if security == "starttls":
        options |= {"tls_context": server_tls, "require_starttls": True}
    port = _free_port()
    controller = Controller(
        _Handler(box, security == "tls"),
        hostname="127.0.0.1",
        port=port,
        ssl_context=server_tls if security == "tls" else None,
        ready_timeout=10,
        **options,
    )
    controller.start()
    box.port = port
    try:
        yield box
    finally:
        box.released.set()
        controller.stop()


# --- a server that sends one byte at a time ---------------------------------------------------------------------------
_REPLIES = {
    "EHLO": b"250-mail\r\n250-STARTTLS\r\n250 AUTH PLAIN\r\n",
    "STARTTLS": b"220 go\r\n",
    "AUTH": b"235 welcome\r\n",
    "DATA": b"354 go on\r\n",
}
_DRIPS_FOR_S = 90.0  # then it closes the connection: a client without a deadline also ends, and its test fails


@contextmanager
def dripping_server(stage: str, every_s: float = 0.02) -> Iterator[int]:
    """A mail server that behaves normally until `stage`, then sends one byte at a time, without end; yields its port.

    Args:
        stage: "greeting", "TLS" (the handshake), the command with the slow reply, or "." for the end of DATA.
    """
    stop = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        serving = threading.Thread(target=_serve_drips, args=(listening, stage, every_s, stop))
        serving.start()
        try:
            yield int(listening.getsockname()[1])
        finally:
            stop.set()
            serving.join()


def _serve_drips(listening: socket.socket, stage: str, every_s: float, stop: threading.Event) -> None:
    while not stop.is_set():
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        with connection, suppress(OSError):
            connection.settimeout(_DRIPS_FOR_S)
            _drip(connection, stage, every_s, stop)


def _drip(connection: socket.socket, stage: str, every_s: float, stop: threading.Event) -> None:
    commands, in_data = connection.makefile("rb"), False
    if stage != "greeting":
        connection.sendall(b"220 mail\r\n")
        for line in commands:
            command = line.decode().strip() if in_data else line.decode().split()[0].upper()
            if in_data and command != ".":
                continue
            in_data = command == "DATA"
            if command == stage:
                break
            connection.sendall(_REPLIES.get(command, b"250 fine\r\n"))
            if stage == "TLS" and command == "STARTTLS":
                break
    one_by_one = b"\x16\x03\x03\x3f\xff" + b"\0" * 16_383 if stage == "TLS" else b"250-" + b"x" * 5_000
    ends_at = time.monotonic() + _DRIPS_FOR_S
    for byte in one_by_one:
        if stop.wait(every_s) or time.monotonic() > ends_at:
            return
        connection.sendall(bytes([byte]))


def _checks(box: Mailbox, password: str, tls_from_the_start: bool) -> Any:
    def check(_server: SMTP, session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        box.logins.append((data.login.decode(), data.password.decode(), tls_from_the_start or session.ssl is not None))
        return AuthResult(success=data.password.decode() == password, handled=False)

    return check


def _server_tls(ca: trustme.CA, names: tuple[str, ...]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(*names).configure_cert(context)
    return context


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
