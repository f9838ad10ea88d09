"""The schema. `migrations/` builds the same; a test compares the two.

Money is whole micro-dollars. Times are whole seconds (`_s`) in the history and whole milliseconds (`_ms`) elsewhere,
both since 1970 in UTC. Booleans in keys are 0 or 1, so that the same SQL text works on SQLite and PostgreSQL. The
tables of alerts, chats, forecasts, identities, providers, lakes and hosts are in `side_tables.py`, those of jobs and
those beside `launch` in `schema/`.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    literal_column,
    text,
)

from gpuwatch.storage.setup.machine_facts import MACHINE_FACTS
from gpuwatch.storage.setup.schema import job_tables as job_tables  # noqa: PLC0414 its tables are of the schema, too
from gpuwatch.storage.setup.schema import launch_side_tables as launch_side_tables  # noqa: PLC0414 the same
from gpuwatch.storage.setup.side_tables import metadata as metadata  # noqa: PLC0414 with this module it knows every table
from gpuwatch.storage.setup.side_tables import partial_index

_COVERS = text("covers = 1")

# --- the history ------------------------------------------------------------------------------------------------------
segment = Table(
    "segment",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("provider", String(32), nullable=False),
    Column("gpu", String(200), nullable=False),
    Column("gpu_count", SmallInteger, nullable=False),
    Column("spot", SmallInteger, nullable=False),
    Column("gpu_family", String(200), nullable=False),
    Column("gpu_memory_gib", Float),
    UniqueConstraint("provider", "gpu", "gpu_count", "spot"),
    comment="a part of the market; provider '' and gpu_count 0 are the sum over all providers and counts",
)

place = Table(
    "place",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("region", String(200), nullable=False),
    Column("country", String(2), nullable=False),
    UniqueConstraint("region", "country"),
    comment="where machines are; '' where the provider does not say",
)

series = Table(
    "series",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("segment_id", Integer, ForeignKey("segment.id"), nullable=False),
    Column("machine_id", String(64), nullable=False),
    Column("on_offer", SmallInteger, nullable=False),  # 1: its newest interval is open; found without a scan
    # facts as last seen; they may change while the identity stays the same
    Column("offer_id", String(64), nullable=False),
    Column("place_id", Integer, ForeignKey("place.id"), nullable=False),
    *(Column(fact.column, fact.sql_type) for fact in MACHINE_FACTS),
    UniqueConstraint("segment_id", "machine_id"),
    comment="one identity: provider × machine × GPU × count × rental type",
)

price_interval = Table(
    "price_interval",
    metadata,
    Column("series_id", Integer, ForeignKey("series.id"), primary_key=True, autoincrement=False),
    Column("seen_from_s", Integer, primary_key=True, autoincrement=False),
    Column("seen_to_s", Integer),
    Column("machine_microusd_hour", BigInteger, nullable=False),
    Column("disk_microusd_gb_month", BigInteger),
    Column("ended_s", Integer),
    sqlite_with_rowid=False,
    comment="one price from first seen to last seen; seen_to_s NULL: still current at the newest poll that covers it; "
    "ended_s: the first poll that would have shown it and did not, or the offer's next price; NULL: neither yet",
)

poll = Table(
    "poll",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("provider", String(32), nullable=False),
    Column("lane", String(8), nullable=False),
    Column("gpu", String(200), nullable=False),
    Column("spot", SmallInteger, nullable=False),
    Column("at_s", Integer, nullable=False),
    Column("completeness", String(12), nullable=False),
    Column("covers", SmallInteger, nullable=False),
    Column("complete_to_microusd", BigInteger),
    Column("rows", Integer, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("elapsed_ms", Integer, nullable=False),
    Column("error", Text),
    Column("not_understood", Text),  # reason → skipped rows, as JSON
    Index(None, "provider", "at_s"),
    partial_index("ix_poll_covering", "provider", "gpu", "spot", "at_s", where=_COVERS),
    comment="every search; gpu '' = all models; completeness 'failed' = no answer: a gap, never 'no offers'; "
    "covers 1: an offer that it does not show (listed at or under complete_to_microusd, if set) is gone",
)

poll_day = Table(
    "poll_day",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("gpu", String(200), primary_key=True),
    Column("spot", SmallInteger, primary_key=True, autoincrement=False),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("covered_s", Integer),
    Column("polls", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
    comment="the polls of a UTC day (days since 1970) that is over, packed: they stay when their rows are deleted; "
    "covered_s: the newest covering one",
)

poll_total = Table(
    "poll_total",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("gpu", String(200), primary_key=True),
    Column("spot", SmallInteger, primary_key=True, autoincrement=False),
    Column("lane", String(8), primary_key=True),
    Column("searches", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("answered_s", Integer),
    Column("answered_rows", Integer),
    Column("answered_skipped", Integer),
    Column("complete_s", Integer),
    Column("complete_rows", Integer),
    comment="searches and their rows since the first one, kept by the recorder; answered: the newest complete or "
    "truncated answer; complete: the newest complete one",
)

pruned_total = Table(
    "pruned_total",
    metadata,
    Column("counter", String(32), primary_key=True),
    Column("kind", String(16), primary_key=True),
    Column("severity", String(16), primary_key=True),
    Column("total", BigInteger, nullable=False),
    comment="what pruned rows still add to counters: none falls when its rows go; kind, severity: of alerts",
)

# The 1 is written out, as in the partial index: the planner need not know a parameter to use it.
IS_COVERING = poll.c.covers == literal_column("1")

hourly = Table(
    "hourly",
    metadata,
    Column("segment_id", Integer, ForeignKey("segment.id"), primary_key=True, autoincrement=False),
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("min_microusd", BigInteger, nullable=False),
    Column("q1_microusd", BigInteger, nullable=False),
    Column("median_microusd", BigInteger, nullable=False),
    Column("q3_microusd", BigInteger, nullable=False),
    Column("offers", Integer, nullable=False),
    Column("offer_seconds", Integer, nullable=False),
    Column("sketch", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
    comment="listed GPU prices of one hour, weighted by the time each was on offer",
)

history_state = Table(
    "history_state",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
    Column("next_hour", Integer),
    Column("kept_from_s", Integer),
    Column("rewritten", BigInteger, nullable=False, server_default="0"),
    Column("packed_to_day", Integer),
    Column("kept_by_default", SmallInteger, nullable=False, server_default="1"),
    comment="one row: version grows with every change of an interval, so that a writer sees whether its memory "
    "is still current; next_hour is the first hour without a roll-up; intervals before kept_from_s were "
    "pruned; rewritten grows with every change of what was over: late polls, imports, a clock set back, pruning; "
    "the polls of the days before packed_to_day are in poll_day; kept_by_default 0: it holds rows from "
    "before [history] keep, and its owner decides",
)

quota_day = Table(
    "quota_day",
    metadata,
    Column("provider", String(32), primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("rows", Integer, nullable=False),
    comment="rows returned per UTC day (days since 1970)",
)

# --- decisions, alerts ------------------------------------------------------------------------------------------------
watch_state = Table(
    "watch_state",
    metadata,
    Column("watch", String(200), primary_key=True),
    Column("fired_at_ms", BigInteger),
    Column("fired_microusd_gpu_hour", Float),
    Column("under_since_ms", BigInteger),
    Column("misses", Integer, nullable=False),
    Column("spot_wait_since_ms", BigInteger),
    Column("spot_idle_since_ms", BigInteger),
    comment="what a watch remembers between polls",
)

auto_price = Table(
    "auto_price",
    metadata,
    Column("watch", String(200), primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
    Column("limit_microusd_gpu_hour", BigInteger),
    Column("computed_at_ms", BigInteger),
    comment='max_price = "auto": when the watch was first evaluated, and the newest limit',
)

checklist_tick = Table(
    "checklist_tick",
    metadata,
    Column("watch", String(200), primary_key=True),
    Column("item", String(200), primary_key=True),
    Column("at_ms", BigInteger, nullable=False),
    Column("note", Text),
    comment="the items of a watch's `require` that the owner has ticked",
)

# --- launches ---------------------------------------------------------------------------------------------------------
LAUNCH_STATES = ("intended", "requested", "starting", "running", "stopping", "ended", "failed", "unknown", "held")
OVER_STATES = ("ended", "failed")
_ALIVE = text("state NOT IN ('ended', 'failed')")

launch = Table(
    "launch",
    metadata,
    Column("launch_id", String(32), primary_key=True),
    Column("watch", String(200), nullable=False),
    Column("slot", Integer, nullable=False),
    Column("provider", String(32), nullable=False),
    Column("offer_id", String(64), nullable=False),
    Column("machine_id", String(64)),
    Column("gpu", String(200), nullable=False),
    Column("gpu_count", SmallInteger, nullable=False),
    Column("spot", SmallInteger, nullable=False),
    Column("instance_id", String(64)),
    Column("state", String(12), nullable=False),
    Column("dry_run", Boolean, nullable=False),
    Column("label", String(64), nullable=False),
    Column("listed_microusd_hour", BigInteger, nullable=False),
    Column("price_microusd_hour", BigInteger, nullable=False),
    Column("disk_microusd_hour", BigInteger, nullable=False, server_default="0"),  # listed; also billed before it runs
    Column("max_runtime_s", Float),
    Column("ready_within_s", Float),
    Column("intended_at_ms", BigInteger, nullable=False),
    Column("requested_at_ms", BigInteger),
    Column("running_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
    Column("end_reason", Text),
    Column("version", Integer, nullable=False, server_default="0"),
    Column("most_microusd_hour", BigInteger, nullable=False, server_default="0"),
    Column("bid_microusd_hour", BigInteger),
    Column("spans", Text),  # JSON: [[since_ms, listed_microusd_hour, price_microusd_hour], …]
    Column("condition", String(12)),
    Column("condition_since_ms", BigInteger),
    Column("promised", Text),  # JSON: the facts of the offer
    Column("tries", Integer, nullable=False, server_default="1"),
    Column("relaunch_of", String(32)),
    Column("offer_slot", Integer, nullable=False, server_default="0"),  # distinguishes several launches of one stock
    Column("account_id", String(200)),  # at the provider; NULL: unknown, as before schema 0007
    Column("install_id", String(8)),
    Column("watch_id", String(8)),
    Column("terms", Text),  # JSON: the terms of its watch at admission, as far as following it needs them; no secrets
    Column("spent_microusd", BigInteger),  # once it is over: its cost, with commission; not of a dry run
    Column("ssh", Text),  # JSON: host, port and user of its SSH server; NULL: not known
    Column("started_by", Text),  # who approved it, and through which face; NULL: its watch or job
    Column("kept", Text),  # JSON: to be stopped with its disk kept, or started again; NULL: it is to run
    Column("interruption", Text),  # JSON: the provider's newest notice that it takes the machine back
    CheckConstraint("state IN ('" + "', '".join(LAUNCH_STATES) + "')", name="state"),
    Index(None, "state", "provider", "spent_microusd"),
    Index(None, "state", "ended_at_ms"),
    Index(None, "watch", "dry_run", "requested_at_ms"),
    Index(None, "instance_id"),
    partial_index("uq_launch_slot_alive", "watch", "slot", unique=True, where=_ALIVE),
    partial_index("uq_launch_offer_alive", "provider", "offer_id", "offer_slot", unique=True, where=_ALIVE),
    comment="one decision to rent, from the intent to the end; version is a fencing number",
)
# Equal states, which an index finds; written out, as a list of parameters would be rendered anew at each use.
_ALIVE_STATES = ", ".join(f"'{state}'" for state in LAUNCH_STATES if state not in OVER_STATES)
IS_ALIVE = launch.c.state.bool_op("IN")(literal_column(f"({_ALIVE_STATES})"))

launch_event = Table(
    "launch_event",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("launch_id", String(32), ForeignKey("launch.launch_id"), nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("from_state", String(12)),
    Column("to_state", String(12), nullable=False),
    Column("cause", String(200), nullable=False),
    Column("provider_message", Text),
    Column("listed_microusd_hour", BigInteger),
    Column("price_microusd_hour", BigInteger),
    Index(None, "launch_id", "at_ms"),
    comment="every transition of a launch, with its cause",
)

hook_run = Table(
    "hook_run",
    metadata,
    Column("launch_id", String(32), ForeignKey("launch.launch_id"), primary_key=True),
    Column("event", String(16), primary_key=True),
    Column("state", String(8), nullable=False),
    Column("body", Text, nullable=False),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_try_at_ms", BigInteger, nullable=False),
    Column("leased_until_ms", BigInteger),
    Column("last_error", Text),
    CheckConstraint("state IN ('pending', 'done', 'failed')", name="state"),
    Index(None, "state", "next_try_at_ms"),
    comment="the owner's hooks: written with the transition that triggers them, run afterwards; body is the "
    "launch as JSON",
)
