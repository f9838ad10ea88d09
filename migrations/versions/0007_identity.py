"""Gives launches the ids of their account, installation and watch."""

# ruff: noqa: E501
from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_IN_USE = sa.text("retired_at_ms IS NULL")


def upgrade() -> None:
    op.add_column("launch", sa.Column("account_id", sa.String(length=200), nullable=True))
    op.add_column("launch", sa.Column("install_id", sa.String(length=8), nullable=True))
    op.add_column("launch", sa.Column("watch_id", sa.String(length=8), nullable=True))
    op.add_column("launch", sa.Column("terms", sa.Text(), nullable=True))
    op.create_table(
        "installation",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("install_id", sa.String(length=8), nullable=False),
        sa.Column("key_salt", sa.String(length=64), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_installation")),
        comment="one row: whose launches these are; key_salt goes into the hashes of keys in provider_account",
    )
    op.create_table(
        "provider_account",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("account_id", sa.String(length=200), nullable=False),
        sa.Column("known_by", sa.String(length=8), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_seen_ms", sa.BigInteger(), nullable=False),
        sa.Column("same_as", sa.String(length=200), nullable=True),
        sa.CheckConstraint("known_by IN ('id', 'key')", name=op.f("ck_provider_account_known_by")),
        sa.PrimaryKeyConstraint("provider", "account_id", name=op.f("pk_provider_account")),
        comment="accounts at providers; known_by id: the provider's own; key: a salted hash of a key; same_as: the account that this key belongs to",
    )
    op.create_table(
        "watch_identity",
        sa.Column("watch_id", sa.String(length=8), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("retired_at_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("watch_id", name=op.f("pk_watch_identity")),
        comment="a watch keeps its id when it is renamed; retired_at_ms: it is in the settings no more",
    )
    op.create_index(
        "uq_watch_identity_in_use",
        "watch_identity",
        ["name"],
        unique=True,
        sqlite_where=_IN_USE,
        postgresql_where=_IN_USE,
    )
    op.create_table(
        "foreign_installation",
        sa.Column("install_id", sa.String(length=8), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("install_id", name=op.f("pk_foreign_installation")),
        comment="other installations, by the id in their labels, whose instances the owner said are not of this one",
    )
    op.create_table(
        "unknown_instance",
        sa.Column("provider", sa.String(length=32), nullable=False),
        sa.Column("instance_id", sa.String(length=64), nullable=False),
        sa.Column("account_id", sa.String(length=200), nullable=True),
        sa.Column("label", sa.String(length=200), nullable=False),
        sa.Column("first_listed_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("provider", "instance_id", name=op.f("pk_unknown_instance")),
        comment="listed with gpuwatch's label, of no launch here: nothing is rented at the provider until each is settled",
    )


def downgrade() -> None:
    op.drop_table("unknown_instance")
    op.drop_table("foreign_installation")
    op.drop_index("uq_watch_identity_in_use", table_name="watch_identity")
    op.drop_table("watch_identity")
    op.drop_table("provider_account")
    op.drop_table("installation")
    for name in ("terms", "watch_id", "install_id", "account_id"):
        op.drop_column("launch", name)
