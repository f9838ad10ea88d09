"""Email, with the standard library's smtplib: one connection per batch, one result per recipient."""

from __future__ import annotations

import smtplib
import socket
import ssl
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import SMTP as SMTP_POLICY
from email.utils import format_datetime
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.errors import DeliverLater, DeliveryRefused
from gpuwatch.notifiers.email.mail_connection import BoundedSmtp, envelope_address, header_address, parse_address
from gpuwatch.notifiers.email.mail_page import PICTURE_ID, as_html
from gpuwatch.notifiers.email.mail_setup import ask_mail
from gpuwatch.notifiers.toolkit import (
    CHECK_S,
    TEMPLATES,
    check_findings,
    cleaned,
    finish_delivery,
    pending_recipients,
    recipient_key,
    subject,
    text_of,
)
from gpuwatch.ports import Alert, ChannelSettings, Severity
from gpuwatch.ports.alerts import AlertPicture, PictureSource
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec
from gpuwatch.ports.dialog import ChannelSetup
from gpuwatch.ports.settings import Option, parse_line, parse_list, parse_password
from gpuwatch.redaction import redact, register_secret

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

_POLICY = SMTP_POLICY.clone(cte_type="7bit")  # not every server takes 8-bit text (RFC 6152)
_PORTS = {"starttls": 587, "tls": 465, "none": 25}

# Greylisting ends after some minutes; RFC 5321's 30 minutes are too long for a price.
_RETRY_AFTER_S = (300.0, 900.0, 1800.0, 3600.0)
_DEADLINE_S = 25.0  # for one mail, from the first packet to the last reply
_QUIT_TIMEOUT_S = 2.0
_AUTH_IN_CLEAR = ("CRAM-MD5", "PLAIN", "LOGIN")
_AUTH_UNDER_TLS = ("PLAIN", "LOGIN", "CRAM-MD5")
Replies = Mapping[str, tuple[int, bytes]]  # recipient, or its address → code and text
_NO_SMTPUTF8 = (0, b"the server takes no addresses with letters outside ASCII before the @ (SMTPUTF8)")  # 0: our own


def _check(values: Mapping[str, Option]) -> None:
    if (values.get("username") is None) != (values.get("password") is None):
        raise ValueError("expected both username and password, or neither")


INFO = ChannelInfo(
    name="email",
    title="Mail",
    options=(
        OptionSpec(name="host", kind="text", about="Mail server.", needed=True, parse=parse_line),
        OptionSpec(
            name="port",
            kind="integer",
            about="Port; default 587 with starttls, 465 with tls, 25 with none.",
            least=1,
            most=65_535,
        ),
        OptionSpec(
            name="security",
            kind="text",
            about="Encryption of the connection.",
            default="starttls",
            choices=tuple(_PORTS),
        ),
        OptionSpec(name="username", kind="text", about="User at the mail server; requires password.", parse=parse_line),
        OptionSpec(
            name="password", kind="text", about="Secret; password of the user.", secret=True, parse=parse_password
        ),
        OptionSpec(name="sender", kind="text", about="Sender address of the alerts.", needed=True, parse=parse_address),
        OptionSpec(
            name="recipients",
            kind="texts",
            about="Recipient addresses.",
            needed=True,
            parse=parse_list(parse_address),
        ),
        TEMPLATES,
    ),
    check=_check,
    template="""\
host = "mail.example.org"
security = "starttls"           # "starttls" (port 587), "tls" (465) or "none" (25)
username = "me"                 # and the secret GPUWATCH_NOTIFY__EMAIL__PASSWORD
sender = "gpuwatch@example.org"
recipients = ["me@example.org"]
""",
    docs="alerts.md#email",
    setups=(ChannelSetup(name="mail", rank=2, ask=ask_mail),),
    doctor=lambda settings, http: check_findings("email", build(settings, http).check),
)


def build(settings: ChannelSettings, http: HttpClient) -> EmailChannel:
    """Build the channel of `[notify.email]`. Mail needs no HTTP."""
    options: dict[str, Any] = dict(settings.options)
    options["port"] = options["port"] or _PORTS[options["security"]]
    return EmailChannel(EmailSettings(**options))


class EmailSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.email]`. `password` is a secret."""

    host: str
    port: int
    security: str  # "starttls" | "tls" | "none"
    sender: str
    recipients: tuple[str, ...]
    username: str | None = None
    password: str | None = None
    templates: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"EmailSettings({self.host!r}, {self.port}, {self.security!r})"


class EmailChannel:
    """One sender, one or more recipients.

    Args:
        tls: the trusted certificates; None: the system's.
        deadline_s: for one mail, including the connection; a slower server is abandoned.
    """

    name = "email"

    def __init__(
        self,
        settings: EmailSettings,
        *,
        tls: ssl.SSLContext | None = None,
        deadline_s: float = _DEADLINE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        register_secret(settings.password)
        self._settings = settings
        self._tls = tls
        self._deadline_s = deadline_s
        self._monotonic = monotonic
        self._connection: BoundedSmtp | None = None
        self._in_batch = False
        self.pictures: PictureSource | None = None

    def send(self, alert: Alert) -> None:
        """Deliver once, to all. Raises DeliverLater, DeliveryRefused."""
        self.send_remaining(alert, ())

    def send_remaining(self, alert: Alert, taken: Sequence[str]) -> None:
        """Deliver to those recipients that have not received the alert yet.

        Raises:
            DeliverLater: the server is unavailable, or a recipient is greylisted; `taken` names the others.
            DeliveryRefused: with `taken`: some recipients only; without: no STARTTLS, a wrong login, or all recipients.
        """
        pending = pending_recipients(self._settings.recipients, taken)
        if not pending:
            return
        replies = self._deliver(alert, pending)
        deferred = {recipient: reply for recipient, reply in replies.items() if 400 <= reply[0] < 500}
        refused = {recipient: reply for recipient, reply in replies.items() if recipient not in deferred}
        settled = [
            *taken,
            *("!" + recipient_key(recipient) for recipient in refused),
            *(recipient_key(recipient) for recipient in pending if recipient not in replies),
        ]
        finish_delivery(self.name, _replies_text(deferred), _replies_text(refused), settled, _RETRY_AFTER_S)

    def check(self) -> str:
        """Connect and log in as for a mail, but send none. Raises DeliverLater, DeliveryRefused."""
        with self._delivery_errors(min(self._deadline_s, CHECK_S)) as ends_at:
            self._connection = self._connect(ends_at)
        self._disconnect()
        login = "accepts the connection" if self._settings.username is None else "accepts the login"
        return f"{self._settings.host} {login}"

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Keep the connection open inside the block."""
        self._in_batch = True
        try:
            yield
        finally:
            self._in_batch = False
            self._disconnect()

    def _deliver(self, alert: Alert, recipients: Sequence[str]) -> Replies:
        """Send the mail; return the replies about recipients that did not get it."""
        unsupported = set[str]()
        picture = self.pictures.picture_for(alert) if self.pictures else None
        try:
            with self._delivery_errors(self._deadline_s) as ends_at:
                connection = self._connection or self._connect(ends_at)
                self._connection = connection
                connection.ends_at = ends_at
                if not connection.has_extn("smtputf8"):
                    unsupported = {one for one in self._settings.recipients if not envelope_address(one).isascii()}
                mail = compose(alert, self._settings, unsupported, picture)
                addresses = {one: envelope_address(one) for one in recipients if one not in unsupported}
                replies = self._transmit(connection, mail, list(addresses.values()))
        finally:
            if not self._in_batch:
                self._disconnect()
        refused = {one: replies[address] for one, address in addresses.items() if address in replies}
        return refused | {one: _NO_SMTPUTF8 for one in recipients if one in unsupported}

    def _transmit(self, connection: BoundedSmtp, mail: EmailMessage, addresses: Sequence[str]) -> Replies:
        if not addresses:
            return {}
        try:
            return connection.send_message(mail, envelope_address(self._settings.sender), list(addresses))
        except smtplib.SMTPRecipientsRefused as error:
            return error.recipients

    @contextmanager
    def _delivery_errors(self, deadline_s: float) -> Iterator[float]:
        """Yield the end of the time limit for the block, and convert errors to DeliveryError."""
        ends_at = self._monotonic() + deadline_s
        try:
            yield ends_at
        except (smtplib.SMTPException, OSError, ValueError) as error:
            self._disconnect()
            if self._monotonic() >= ends_at:
                raise DeliverLater(f"email: {self._settings.host} took longer than {deadline_s:g} s") from None
            raise _delivery_error(error) from None

    def _connect(self, ends_at: float) -> BoundedSmtp:
        settings = self._settings
        context = self._tls or ssl.create_default_context()
        connection = BoundedSmtp(
            settings.host,
            settings.port,
            tls=context if settings.security == "tls" else None,
            own_name=_greeting_name(),
            ends_at=ends_at,
            monotonic=self._monotonic,
        )
        try:
            self._secure(connection, context)
        except BaseException:
            connection.close()
            raise
        return connection

    def _secure(self, connection: smtplib.SMTP, context: ssl.SSLContext) -> None:
        settings = self._settings
        connection.ehlo_or_helo_if_needed()
        if settings.security == "starttls":
            if not connection.has_extn("starttls"):
                raise DeliveryRefused(
                    f"email: {settings.host} offers no STARTTLS, so nothing was sent. "
                    'Set [notify.email] security = "tls" (port 465), or "none" to send without encryption'
                )
            connection.starttls(context=context)
            connection.ehlo_or_helo_if_needed()
        if settings.username is not None:
            self._log_in(connection)

    def _log_in(self, connection: smtplib.SMTP) -> None:
        """Send one AUTH with one mechanism: smtplib's own `login` would try a wrong password with each."""
        settings = self._settings
        offered = connection.esmtp_features.get("auth", "").upper().split()
        preferred = _AUTH_IN_CLEAR if settings.security == "none" else _AUTH_UNDER_TLS
        mechanism = next((name for name in preferred if name in offered), None)
        if mechanism is None:
            raise DeliveryRefused(
                f"email: {settings.host} offers no login method that gpuwatch supports, but username is set"
            )
        connection.user, connection.password = settings.username or "", settings.password or ""
        if mechanism == "CRAM-MD5":
            connection.auth(mechanism, connection.auth_cram_md5)
        elif mechanism == "PLAIN":
            connection.auth(mechanism, connection.auth_plain)
        else:
            connection.auth(mechanism, connection.auth_login)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.ends_at = self._monotonic() + _QUIT_TIMEOUT_S
        try:
            connection.quit()
        except (smtplib.SMTPException, OSError):
            connection.close()


def compose(
    alert: Alert, settings: EmailSettings, left_out: Collection[str] = (), picture: AlertPicture | None = None
) -> EmailMessage:
    """Build the mail: text, and the same as HTML. Its Message-ID depends on the alert, so a copy can be recognised.

    Args:
        left_out: recipients that do not get it, and that its header cannot name.
        picture: below the text of the HTML; the mail carries it, so that nothing is loaded from elsewhere.
    """
    mail = EmailMessage(policy=_POLICY)
    sender = header_address(settings.sender)
    mail["From"] = sender
    mail["To"] = [header_address(recipient) for recipient in settings.recipients if recipient not in left_out]
    mail["Subject"] = f"[gpuwatch] {subject(alert)}"
    mail["Date"] = format_datetime(alert.created_at)
    mail["Message-ID"] = f"<{_safe_id(alert.alert_id)}.gpuwatch@{_safe_id(sender.domain or 'localhost')}>"
    mail["Auto-Submitted"] = "auto-generated"
    if alert.severity is Severity.CRITICAL:
        mail["Importance"] = "high"  # RFC 4021; most programs highlight it
        mail["X-Priority"] = "1"
    mail["X-Gpuwatch-Alert"] = _safe_id(alert.alert_id)
    mail.set_content(text_of(settings.templates, alert) + "\n")
    text = None if picture is None else picture.text
    mail.add_alternative(as_html(alert, settings.templates, picture_text=text), subtype="html")
    if picture is not None:
        page = mail.get_payload(1)
        assert isinstance(page, EmailMessage)
        page.add_related(picture.png, "image", "png", cid=f"<{PICTURE_ID}>", disposition="inline")
    return mail


def _delivery_error(error: Exception) -> DeliverLater | DeliveryRefused:
    if isinstance(error, ssl.SSLCertVerificationError):
        return DeliveryRefused(f"email: the server's certificate is not trusted ({redact(error.verify_message)})")
    if isinstance(error, smtplib.SMTPResponseException):
        reply = _reply_text(error.smtp_code, error.smtp_error)
        if 400 <= error.smtp_code < 500:
            return DeliverLater(f"email: {reply}", waits_s=_RETRY_AFTER_S)
        if error.smtp_code >= 500:
            prefix = "login refused: " if isinstance(error, smtplib.SMTPAuthenticationError) else ""
            return DeliveryRefused(f"email: {prefix}{reply}")
    if isinstance(error, (smtplib.SMTPNotSupportedError, ValueError)):
        return DeliveryRefused(f"email: {cleaned(redact(str(error)))}")
    return DeliverLater(f"email: {cleaned(redact(str(error) or type(error).__name__))}")


def _reply_text(code: int, message: bytes | str) -> str:
    text = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
    return cleaned(redact(f"{code or ''} {text}".strip()))


def _replies_text(replies: Replies) -> str:
    return "; ".join(f"{recipient}: {_reply_text(*reply)}" for recipient, reply in replies.items())


def _safe_id(text: str) -> str:
    return "".join(c for c in text[:100] if c.isascii() and (c.isalnum() or c in "-._")) or "x"


def _greeting_name() -> str:
    """Return the name for EHLO. `getfqdn` is not used: it hangs if DNS is broken."""
    name = socket.gethostname()
    return name if "." in name and name.isascii() else "[127.0.0.1]"
