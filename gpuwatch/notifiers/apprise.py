"""Apprise: ntfy, Slack, Discord and a hundred other services. Apprise does not report why a delivery failed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping, Sequence
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.errors import DeliveryRefused
from gpuwatch.notifiers.toolkit import (
    TEMPLATES,
    check_findings,
    finish_delivery,
    pending_recipients,
    recipient_key,
    subject,
    text_of,
)
from gpuwatch.ports import Alert, ChannelSettings, Severity
from gpuwatch.ports.declarations import ChannelInfo, OptionSpec
from gpuwatch.ports.dialog import ChannelAnswers, ChannelSetup, Dialog
from gpuwatch.ports.settings import parse_list, parse_password
from gpuwatch.redaction import register_secret

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

INFO = ChannelInfo(
    name="apprise",
    title="Apprise",
    options=(
        OptionSpec(
            name="urls",
            kind="texts",
            about='Secrets; addresses in Apprise syntax: ["ntfy://…", "slack://…"].',
            secret=True,
            needed=True,
            parse=parse_list(parse_password),
        ),
        TEMPLATES,
    ),
    template='urls = ["ntfy://…"]             # one of about a hundred services\n',
    docs="alerts.md#apprise",
    setups=(
        ChannelSetup(name="ntfy", rank=3, ask=lambda dialog, http, given: _ask_ntfy(dialog)),
        ChannelSetup(name="slack", rank=4, ask=lambda dialog, http, given: _ask_address(dialog, _SLACK)),
        ChannelSetup(name="discord", rank=5, ask=lambda dialog, http, given: _ask_address(dialog, _DISCORD)),
    ),
    doctor=lambda settings, http: check_findings("apprise", build(settings, http).check),
)

_SLACK = "Paste the address of an incoming webhook, https://hooks.slack.com/services/… (not shown)"
_DISCORD = "Paste the webhook's address, https://discord.com/api/webhooks/… (not shown)"
_TYPES = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}  # Apprise's names


def build(settings: ChannelSettings, http: HttpClient) -> AppriseChannel:
    """Build the channel of `[notify.apprise]`. Apprise uses its own HTTP client."""
    options: dict[str, Any] = dict(settings.options)
    return AppriseChannel(AppriseSettings(**options))


class AppriseSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`[notify.apprise]`. Every URL is a secret: most contain a token."""

    urls: tuple[str, ...]
    templates: Mapping[str, str] | None = None

    def __repr__(self) -> str:
        return f"AppriseSettings({len(self.urls)} urls)"


class AppriseChannel:
    """Any number of services, each with its URL. Because URLs are secret, texts identify one by number and scheme.

    Args:
        import_module: imports a module by name.
    """

    name = "apprise"

    def __init__(
        self, settings: AppriseSettings, *, import_module: Callable[[str], Any] = importlib.import_module
    ) -> None:
        register_secret(*settings.urls)
        self._urls = settings.urls
        self._templates = settings.templates
        self._import_module = import_module

    def send(self, alert: Alert) -> None:
        """Deliver once, to all services. Raises DeliverLater, DeliveryRefused."""
        self.send_remaining(alert, ())

    def send_remaining(self, alert: Alert, taken: Sequence[str]) -> None:
        """Deliver to those services that have not accepted the alert yet.

        Raises:
            DeliverLater: some did not accept it; `taken` names the others.
            DeliveryRefused: Apprise does not support an address.
        """
        self._send(alert, taken, _TYPES[alert.severity])

    def send_silently(self, alert: Alert, taken: Sequence[str] = ()) -> None:
        """Like `send_remaining`, but as plain information, which some services deliver without a sound."""
        self._send(alert, taken, _TYPES[Severity.INFO])

    def _send(self, alert: Alert, taken: Sequence[str], kind: str) -> None:
        apprise, text = self._apprise(), text_of(self._templates, alert)
        settled, failed, unknown = list(taken), list[str](), list[str]()
        for url in pending_recipients(self._urls, taken):
            label = _service_label(self._urls.index(url) + 1, url)
            was_sent = _notify(apprise, url, subject(alert), text, kind)
            if was_sent is None:
                unknown.append(label)
                settled.append("!" + recipient_key(url))
            elif was_sent:
                settled.append(recipient_key(url))
            else:
                failed.append(label)
        retry_reason = f"failed for {', '.join(failed)}" if failed else ""
        finish_delivery(self.name, retry_reason, f"unknown service: {', '.join(unknown)}" if unknown else "", settled)

    def check(self) -> str:
        """Check that Apprise supports each service; testing one would send a message. Raises DeliveryRefused."""
        apprise = self._apprise()
        unknown = [
            _service_label(number, url) for number, url in enumerate(self._urls, 1) if not _is_supported(apprise, url)
        ]
        if unknown:
            raise DeliveryRefused(f"apprise: unknown service: {', '.join(unknown)}")
        return f"knows {'its address' if len(self._urls) == 1 else f'all {len(self._urls)} addresses'}"

    def _apprise(self) -> Any:
        apprise = self._import_module("apprise")  # half a second, so not before the first message
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its log lines contain URLs, and so tokens
        return apprise


def _notify(apprise: Any, url: str, title: str, text: str, kind: str) -> bool | None:
    """Return whether it was sent; None: Apprise does not support this service."""
    service = apprise.Apprise()
    try:
        if not service.add(url):
            return None
        return bool(service.notify(title=f"[gpuwatch] {title}", body=text, body_format="text", notify_type=kind))
    except Exception:  # from a hundred plugins; their texts may contain the URL, so none is kept
        return False


def _is_supported(apprise: Any, url: str) -> bool:
    try:
        return bool(apprise.Apprise().add(url))
    except Exception:  # as above
        return False


def _service_label(number: int, url: str) -> str:
    scheme = url.partition("://")[0]
    shown_scheme = scheme if scheme != url and scheme.isalnum() and len(scheme) <= 20 else "?"
    return f"urls[{number}] ({shown_scheme}://…)"


# --- `gpuwatch init` --------------------------------------------------------------------------------------------------


def _ask_ntfy(dialog: Dialog) -> ChannelAnswers:
    """A topic that nobody guesses: whoever knows the name of a topic can read it."""
    topic = dialog.ask("Topic to subscribe to in the ntfy app, or https://server/topic", f"gpuwatch-{token_hex(5)}")
    address = topic.replace("https://", "ntfys://", 1).replace("http://", "ntfy://", 1)
    return _answers(address if "://" in address else f"ntfys://{address}")


def _ask_address(dialog: Dialog, question: str) -> ChannelAnswers | None:
    """An address that Apprise knows; None: given up."""
    apprise = importlib.import_module("apprise")
    while address := dialog.ask_secret(f"{question}; Enter: another channel"):
        if _is_supported(apprise, address):
            return _answers(address)
        dialog.say("That is no such address.")
    return None


def _answers(address: str) -> ChannelAnswers:
    return ChannelAnswers(secrets={"urls": msgspec.json.encode([address]).decode()})
