"""Unclaimed instances as rows: each blocks renting at its provider, for every process on this database."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, Connection, and_, delete, select

from gpuwatch.domain.launches.labels import label_ids
from gpuwatch.domain.launches.launch import LaunchRefusal
from gpuwatch.domain.launches.life.unknown_instance import UnknownInstance, unknown_refusal
from gpuwatch.domain.market.text import storable_text
from gpuwatch.storage.setup.stored_values import from_ms, insert_if_absent, to_ms
from gpuwatch.storage.setup.tables import unknown_instance

_UNKNOWN = unknown_instance.c
_OLDEST_FIRST = select(unknown_instance).order_by(_UNKNOWN.first_listed_ms, _UNKNOWN.instance_id)


def load_unknown(connection: Connection, provider: str) -> list[UnknownInstance]:
    """Return those of one provider, oldest first."""
    return [
        UnknownInstance(
            provider=row.provider,
            instance_id=row.instance_id,
            account_id=row.account_id,
            label=row.label,
            first_listed_at=from_ms(row.first_listed_ms),
        )
        for row in connection.execute(_OLDEST_FIRST.where(_UNKNOWN.provider == provider))
    ]


def unknown_refusals(connection: Connection) -> Mapping[str, LaunchRefusal]:
    """Return why nothing can be rented, by provider, where unknown instances were listed."""
    ids_by_provider: dict[str, list[str]] = {}
    for row in connection.execute(_OLDEST_FIRST):
        ids_by_provider.setdefault(row.provider, []).append(row.instance_id)
    return {provider: unknown_refusal(provider, ids) for provider, ids in ids_by_provider.items()}


def add_unknown(connection: Connection, unknown: UnknownInstance) -> None:
    """Store one; an existing row stays unchanged."""
    row = {
        "provider": unknown.provider,
        "instance_id": storable_text(unknown.instance_id, 64),
        "account_id": unknown.account_id,
        "label": storable_text(unknown.label, 200),
        "first_listed_ms": to_ms(unknown.first_listed_at),
    }
    insert_if_absent(connection, unknown_instance, row)


def remove_unknown(connection: Connection, provider: str, instance_ids: Collection[str]) -> None:
    """Delete settled instances."""
    if instance_ids:
        connection.execute(delete(unknown_instance).where(_is_among(provider, instance_ids)))


def remove_installation(connection: Connection, install_id: str) -> None:
    """Delete all instances labelled by another installation, at every provider."""
    for row in connection.execute(_OLDEST_FIRST).all():
        ids = label_ids(row.label)
        if ids is not None and ids.install_id == install_id:
            remove_unknown(connection, row.provider, [row.instance_id])


def _is_among(provider: str, instance_ids: Collection[str]) -> ColumnElement[bool]:
    return and_(_UNKNOWN.provider == provider, _UNKNOWN.instance_id.in_(list(instance_ids)))
