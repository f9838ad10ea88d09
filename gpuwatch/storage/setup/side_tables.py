"""The tables beside those of prices and launches (`tables.py`), and the metadata object of all tables."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    event,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def partial_index(name: str, *columns: str, where: ColumnElement[bool] | TextClause, unique: bool = False) -> Index:
    """A partial index. `postgresql_where` is set only when needed: checking it loads that dialect, 2 MB."""
    return Index(name, *columns, unique=unique, sqlite_where=where, info={"where": where})


@event.listens_for(metadata, "before_create")
def _on_create(target: MetaData, connection: Connection, **_: Any) -> None:
    if connection.dialect.name == "postgresql":
        for index in (one for table in target.tables.values() for one in table.indexes if "where" in one.info):
            index.dialect_options["postgresql"]["where"] = index.info["where"]


_UNROUTED = text("routed_at_ms IS NULL")

alert = Table(
    "alert",
    metadata,
    Column("alert_id", String(32), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("watch", String(200)),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("body", Text, nullable=False),
    Column("once_key", String(200)),
    Column("severity", String(12), nullable=False, server_default="info"),
    Column("subject", String(200)),
    Column("headline", Text),
    Column("routed_at_ms", BigInteger),
    Column("owner", String(16), nullable=False, server_default=text("''")),
    UniqueConstraint("once_key"),
    Index(None, "created_at_ms"),
    Index(None, "kind", "severity"),
    partial_index("ix_alert_unrouted", "created_at_ms", where=_UNROUTED),
    comment="every event, sent or not; body is its JSON; once_key makes sure that it is stored once only;"
    " routed_at_ms NULL: not logged or given to channels yet; owner: whose channels it is for",
)

delivery = Table(
    "delivery",
    metadata,
    Column("alert_id", String(32), ForeignKey("alert.alert_id"), primary_key=True),
    Column("channel", String(32), primary_key=True),
    Column("state", String(12), nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_try_at_ms", BigInteger, nullable=False),
    Column("leased_until_ms", BigInteger),
    Column("sent_at_ms", BigInteger),
    Column("last_error", Text),
    Column("settled_recipients", Text),  # of several recipients, those that need no further attempt
    Column("first_try_at_ms", BigInteger),
    CheckConstraint("state IN ('pending', 'sent', 'expired', 'refused')", name="state"),
    Index(None, "state", "next_try_at_ms"),
    comment="the outbox: one row per alert and channel",
)

silence = Table(
    "silence",
    metadata,
    Column("watch", String(200), primary_key=True),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    comment="the alerts of a watch are stored and logged, but not sent",
)


_UNFINISHED = text("done_at_ms IS NULL")

chat_poller = Table(
    "chat_poller",
    metadata,
    Column("bot", String(32), primary_key=True),
    Column("holder", String(32), nullable=False),
    Column("leased_until_ms", BigInteger, nullable=False),
    Column("next_update_id", BigInteger, nullable=False, server_default="0"),
    Column("received_at_ms", BigInteger),  # time of the newest update
    comment="which daemon polls a bot, and from which update on",
)

chat_update = Table(
    "chat_update",
    metadata,
    Column("bot", String(32), primary_key=True),
    Column("update_id", BigInteger, primary_key=True, autoincrement=False),
    Column("received_at_ms", BigInteger, nullable=False),
    Column("body", Text),
    Column("button", String(64)),
    Column("done_at_ms", BigInteger),
    UniqueConstraint("bot", "button"),
    partial_index("ix_chat_update_unfinished", "received_at_ms", where=_UNFINISHED),
    comment="messages and presses of people who may send them, until they are carried out; button: the data of a "
    "press that works once; body NULL: carried out",
)


_FORECAST_IS_OPEN = text("score IS NULL")

forecast = Table(
    "forecast",
    metadata,
    Column("forecast_id", String(32), primary_key=True),
    Column("source", String(16), nullable=False),
    Column("watch", String(200)),
    Column("made_at_ms", BigInteger, nullable=False),
    Column("due_at_ms", BigInteger, nullable=False),
    Column("statement", Text, nullable=False),
    Column("score", Text),
    partial_index("ix_forecast_open", "due_at_ms", where=_FORECAST_IS_OPEN),
    comment="what was stated of prices before a deadline, as JSON; score: what came true, NULL until that is known",
)


_IN_USE = text("retired_at_ms IS NULL")

installation = Table(
    "installation",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("install_id", String(8), nullable=False),
    Column("key_salt", String(64), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("share_key", String(64)),  # signs shared links; NULL: nothing was shared
    comment="one row: whose launches these are; key_salt goes into the hashes of keys in provider_account",
)

provider_account = Table(
    "provider_account",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("account_id", String(200), primary_key=True),
    Column("known_by", String(8), nullable=False),
    Column("first_seen_ms", BigInteger, nullable=False),
    Column("last_seen_ms", BigInteger, nullable=False),
    Column("same_as", String(200)),
    CheckConstraint("known_by IN ('id', 'key')", name="known_by"),
    comment="accounts at providers; known_by id: the provider's own; key: a salted hash of a key; "
    "same_as: the account that this key belongs to",
)

watch_decision = Table(
    "watch_decision",
    metadata,
    Column("watch", String(200), primary_key=True),
    Column("at_ms", BigInteger, primary_key=True),
    Column("reason", String(32), nullable=False),
    Column("message", String(400), nullable=False),
    Column("limit_microusd_gpu_hour", BigInteger),
    comment="what a watch decided, a row for each change: it holds until the next row of the watch",
)

watch_identity = Table(
    "watch_identity",
    metadata,
    Column("watch_id", String(8), primary_key=True),
    Column("name", String(200), nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("retired_at_ms", BigInteger),
    Column("host", String(255)),
    partial_index("uq_watch_identity_in_use", "name", unique=True, where=_IN_USE),
    comment="a watch keeps its id when it is renamed; retired_at_ms: it is in the settings no more; "
    "host: whose list has it, the newest that was accepted; NULL: unknown, before schema 0019",
)

foreign_installation = Table(
    "foreign_installation",
    metadata,
    Column("install_id", String(8), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    comment="other installations, by the id in their labels, whose instances the owner said are not of this one",
)

unknown_instance = Table(
    "unknown_instance",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("instance_id", String(64), primary_key=True),
    Column("account_id", String(200)),
    Column("label", String(200), nullable=False),
    Column("first_listed_ms", BigInteger, nullable=False),
    comment="listed with gpuwatch's label, of no launch here: nothing is rented at the provider until each is settled",
)


provider_hold = Table(
    "provider_hold",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("kind", String(64), primary_key=True),
    Column("set_at_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("quota_resets_ms", BigInteger),
    comment="a class of requests that a provider wants no more of before until_ms; quota_resets_ms: the day's rows "
    "are used up, and until_ms is the next probe",
)

skipped_scope = Table(
    "skipped_scope",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("scope", String(16), primary_key=True),
    Column("key", String(200), primary_key=True),
    Column("watch", String(200), primary_key=True),
    Column("why", Text, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("launch_id", String(32)),
    comment="what is not ordered before until_ms, because an order within it was refused; watch '': by no watch",
)

provider_health = Table(
    "provider_health",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("lane", String(8), primary_key=True),
    Column("complete_at_ms", BigInteger),
    Column("blind_since_ms", BigInteger),
    Column("last_error", Text),
    Column("not_understood", SmallInteger, nullable=False),
    Column("reported", SmallInteger, nullable=False),
    comment="lane: hunt or sweep; not_understood 1: blind until a row is understood; "
    "reported 0: blind, too, with a lane whose alert covers both",
)

seen_value = Table(
    "seen_value",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("value", String(200), primary_key=True),
    Column("first_seen_ms", BigInteger, nullable=False),
    comment="GPU spellings, field names and skip reasons that were reported already, or are simply known",
)

lake = Table(
    "lake",
    metadata,
    Column("url", String(300), primary_key=True),
    Column("complete_from_s", Integer),
    Column("verified_until_s", Integer),
    Column("next_until_s", Integer),
    Column("late", Text),  # JSON: provider → from when on its parts are written anew, after an import of old days
    comment="lakes that were written: all that was over in [complete_from_s, verified_until_s) is in one, verified; "
    "complete_from_s NULL: from the first; next_until_s: the end of what is being written",
)

lake_part = Table(
    "lake_part",
    metadata,
    Column("url", String(300), primary_key=True),
    Column("name", String(500), primary_key=True),
    Column("dataset", String(16), nullable=False),
    Column("provider", String(200), nullable=False),
    Column("from_s", Integer, nullable=False),
    Column("until_s", Integer, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("checksum", String(64), nullable=False),
    comment="the verified files of a lake; checksum: SHA-256",
)

daemon_lease = Table(
    "daemon_lease",
    metadata,
    Column("role", String(64), primary_key=True),
    Column("holder", String(32), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("since_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Column("steps_down", Boolean, nullable=False),
    Column("lineage", String(100), nullable=False),
    comment="which daemon leads; epoch grows with each change of the holder, times by the database's clock; "
    "lineage: the server and timeline that the holder found",
)

daemon_host = Table(
    "daemon_host",
    metadata,
    Column("holder", String(32), primary_key=True),
    Column("role", String(64), nullable=False),
    Column("host", String(200), nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_ms", BigInteger, nullable=False),
    Column("seen_ms", BigInteger, nullable=False),
    Column("is_rescued", Boolean, nullable=False, server_default=text("false")),
    comment="daemons that share this database, leading or standing by; a row goes with its daemon, or after a day",
)
