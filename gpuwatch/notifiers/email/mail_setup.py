"""Asks for a mailbox when `gpuwatch init` sets up mail: alerts go from its address to itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuwatch.notifiers.email.mail_connection import parse_address
from gpuwatch.ports.dialog import ChannelAnswers, Dialog
from gpuwatch.ports.settings import Option

if TYPE_CHECKING:
    from gpuwatch.ports.http import HttpClient

_HOSTS = {
    "outlook.com": "smtp-mail.outlook.com",
    "hotmail.com": "smtp-mail.outlook.com",
    "icloud.com": "smtp.mail.me.com",
}


def ask_mail(dialog: Dialog, _http: HttpClient, _given: Mapping[str, str]) -> ChannelAnswers | None:
    """Ask for the address, its server and its password; None: given up."""
    address = _ask_address(dialog)
    if not address:
        return None
    domain = address.rpartition("@")[2].strip("> ").lower()
    server = dialog.ask("Mail server, with its port if it is not 587", _HOSTS.get(domain, f"smtp.{domain}"))
    host, _, port = server.partition(":")
    values: dict[str, Option] = {"host": host, "sender": address, "recipients": (address,)}
    if port.isdecimal():
        values |= {"port": int(port)} | ({"security": "tls"} if port == "465" else {})
    password = dialog.ask_secret("Password of the mailbox, often an app password (not shown; Enter: none)")
    if not password:
        return ChannelAnswers(values={"security": "none"} | values)  # a relay of the own network
    return ChannelAnswers(values=values | {"username": address}, secrets={"password": password})


def _ask_address(dialog: Dialog) -> str:
    while text := dialog.ask("Your mail address (Enter: another channel)"):
        try:
            return parse_address(text)
        except ValueError as error:
            dialog.say(f"{error}.".capitalize())
    return ""
