"""Signing of channel buttons, and which alerts have them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from hmac import digest
from typing import TYPE_CHECKING

from gpuwatch.bootstrap import real_now
from gpuwatch.engine.alerts.alert_buttons import AlertButtons
from gpuwatch.engine.alerts.signed_buttons import ButtonSigner
from gpuwatch.ports.buttons import ButtonChannel
from gpuwatch.redaction import register_secret
from gpuwatch.storage.launches.approval_rows import SqlApprovalRepository
from gpuwatch.storage.setup.installation import ensure_installation

if TYPE_CHECKING:
    from gpuwatch.ports import Channel
    from gpuwatch.storage.setup.database import Database

_NONCE = "abcdefghijklmnopqrstuvwxyz0123456789"


def button_signer(channel: ButtonChannel, store: Database) -> ButtonSigner:
    """A signer with secrets of this installation only: the channel's secret, and the salt in the database.

    Raises:
        StoreError: the installation cannot be read.
    """
    return ButtonSigner(_key(channel, store, "buttons"), channel.address, _nonce)


def webhook_secret(channel: ButtonChannel, store: Database) -> str:
    """The secret that a channel's service sends with each request to this installation. Raises StoreError."""
    secret = _key(channel, store, "webhook").hex()
    register_secret(secret)
    return secret


def attach_buttons(store: Database, channels: Iterable[Channel]) -> None:
    """Add buttons to alerts on channels whose users may press them. Raises StoreError."""
    for channel in channels:
        if isinstance(channel, ButtonChannel) and channel.users:
            channel.buttons = AlertButtons(button_signer(channel, store), SqlApprovalRepository(store).get, real_now)


def _key(channel: ButtonChannel, store: Database, purpose: str) -> bytes:
    with store.write() as connection:
        installation = ensure_installation(connection, real_now())
    message = f"gpuwatch {purpose} {installation.install_id} {installation.key_salt}"
    return digest(channel.button_secret.encode(), message.encode(), "sha256")


def _nonce() -> str:
    return "".join(secrets.choice(_NONCE) for _ in range(6))
