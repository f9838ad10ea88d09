"""The files of a lake: their columns, names and metadata. A column has its unit in its name; times are UTC.

`intervals/month=2026-11/provider=vastai/part-2026-11-01--2026-11-28.parquet`: a month is that in which the price ended,
of the hour, or of the poll; the days are those that the part holds, the first and the last.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

from sqlalchemy import BigInteger, Float, Integer, LargeBinary, SmallInteger

from gpuwatch.domain.setup.durations import DAY_S
from gpuwatch.errors import StoreError, UsageError
from gpuwatch.installation import install_hint
from gpuwatch.storage.setup.machine_facts import LAKE_FACTS
from gpuwatch.storage.setup.tables import hourly

LAKE_VERSION = "1"
VERSION_KEY = "gpuwatch.lake_version"
INSTALLATION_KEY = "gpuwatch.install_id"
COMPRESSION = "zstd"
ROWS_PER_GROUP = 16_384
_TYPES = {BigInteger: "int64", Integer: "int64", SmallInteger: "int64", Float: "float64", LargeBinary: "binary"}
_SAFE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class LakeColumn(NamedTuple):
    """A column of a file."""

    name: str
    kind: str  # "moment": whole seconds in the store, a timestamp in the file; else the name of Arrow's type
    about: str = ""


class LakeDataset(NamedTuple):
    """One of the three kinds of files."""

    name: str
    columns: tuple[LakeColumn, ...]
    moment: str  # the column whose month and day decide on the file
    sums: tuple[str, ...]  # whose sums a verified file must have

    def place(self, column: str) -> int:
        """The place of a column."""
        return [one.name for one in self.columns].index(column)


class PartSpan(NamedTuple):
    """Whole days within one month, in seconds since 1970: [from_s, until_s)."""

    from_s: int
    until_s: int

    @property
    def month(self) -> str:
        """Its month, as in the name of the folder."""
        return f"{datetime.fromtimestamp(self.from_s, UTC):%Y-%m}"


_SEGMENT = (
    LakeColumn("gpu", "string", "canonical name"),
    LakeColumn("gpu_family", "string"),
    LakeColumn("gpu_count", "int64", "GPUs of the offer"),
    LakeColumn("gpu_memory_gib", "float64", "of one GPU"),
    LakeColumn("spot", "bool"),
    LakeColumn("source", "string", "provider and kind of price: vastai, gcp:listed, vastai:history (imported)"),
    LakeColumn("kind", "string", "live: of offers for rent; listed: of a price list, which does not prove stock"),
)
INTERVALS = LakeDataset(
    "intervals",
    (
        *_SEGMENT,
        LakeColumn("machine_id", "string"),
        LakeColumn("offer_id", "string", "as last seen, as are place and facts"),
        LakeColumn("region", "string", "empty: not stated"),
        LakeColumn("country", "string", "empty: not stated"),
        *(LakeColumn(fact.column, _TYPES[fact.sql_type]) for fact in LAKE_FACTS),
        LakeColumn("series_id", "int64", "one machine, GPU, count and rental type"),
        LakeColumn("seen_from_utc", "moment", "the first poll at this price"),
        LakeColumn("seen_to_utc", "moment", "the last poll at this price"),
        LakeColumn("ended_utc", "moment", "the first poll without it, or the offer's next price"),
        LakeColumn("machine_microusd_hour", "int64", "listed, whole offer, without disk"),
        LakeColumn("disk_microusd_gb_month", "int64"),
    ),
    "ended_utc",
    ("series_id", "machine_microusd_hour"),
)
HOURLY_CELLS = tuple(column for column in hourly.columns if column.name not in {"segment_id", "hour"})
HOURLY = LakeDataset(
    "hourly",
    (
        *_SEGMENT,
        LakeColumn("hour_utc", "moment"),
        *(LakeColumn(column.name, _TYPES[type(column.type)]) for column in HOURLY_CELLS),
    ),
    "hour_utc",
    ("min_microusd", "offer_seconds"),
)
POLLS = LakeDataset(
    "polls",
    (
        LakeColumn("gpu", "string", "empty: all"),
        LakeColumn("spot", "bool"),
        LakeColumn("source", "string", "provider and kind of price"),
        LakeColumn("kind", "string", "live or listed"),
        LakeColumn("at_utc", "moment"),
        LakeColumn("poll_number", "int64", "the order of polls within a second"),
        LakeColumn("lane", "string", "sweep: of the whole market; hunt: of cheap offers; import"),
        LakeColumn("completeness", "string", "failed: a gap, never 'no offers'"),
        LakeColumn("covers", "bool", "an offer that it does not show is gone"),
        LakeColumn("complete_to_microusd_hour", "int64", "covers the offers at or under this price; empty: all"),
    ),
    "at_utc",
    ("poll_number", "complete_to_microusd_hour"),
)
DATASETS = {dataset.name: dataset for dataset in (INTERVALS, HOURLY, POLLS)}


def arrow_schema(dataset: LakeDataset, install_id: str) -> Any:
    """The schema of a file, with the version, the installation that writes it, and what each column means."""
    pyarrow, _ = import_arrow()
    fields = []
    for column in dataset.columns:
        kind = pyarrow.timestamp("ms") if column.kind == "moment" else pyarrow.type_for_alias(column.kind)
        fields.append(pyarrow.field(column.name, kind, metadata={"about": column.about} if column.about else None))
    return pyarrow.schema(fields, {VERSION_KEY: LAKE_VERSION, INSTALLATION_KEY: install_id})


def import_arrow() -> tuple[Any, Any]:
    """Return `pyarrow` and `pyarrow.parquet`. Raises UsageError: the extra is not installed."""
    try:
        import pyarrow  # noqa: PLC0415 an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"the lake requires pyarrow: {install_hint('lake')}") from error
    return pyarrow, parquet


def part_name(dataset: LakeDataset, provider: str, span: PartSpan) -> str:
    """The name of a part below the lake's folder. What is no plain name is escaped, as Hive does."""
    days = f"{_day(span.from_s)}--{_day(span.until_s - DAY_S)}"
    return f"{dataset.name}/month={span.month}/provider={_escaped(provider)}/part-{days}.parquet"


def _escaped(provider: str) -> str:
    """Also of dots: no name leads out of its folder."""
    return provider if _SAFE_NAME.fullmatch(provider) else quote(provider, safe="").replace(".", "%2E")


def _day(at_s: int) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d}"


def month_start_s(at_s: int) -> int:
    """The first second of a month."""
    return int(datetime.fromtimestamp(at_s, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp())


def month_of(at_s: int) -> PartSpan:
    """The whole month of a moment."""
    from_s = month_start_s(at_s)
    return PartSpan(from_s, month_start_s(from_s + 32 * DAY_S))


def months_between(from_s: int, until_s: int) -> Iterator[PartSpan]:
    """Yield [from_s, until_s), whole days, divided by months."""
    while from_s < until_s:
        month_end_s = month_of(from_s).until_s
        yield PartSpan(from_s, min(month_end_s, until_s))
        from_s = month_end_s


def check_version(name: str, version: str | None) -> None:
    """Refuse a file of another version; None: it says none. Raises StoreError."""
    if version != LAKE_VERSION:
        written = "another program" if version is None else f"version {version!r}"
        raise StoreError(
            f"{name}: a file of a lake of {written}, and this gpuwatch reads version {LAKE_VERSION!r}; "
            "use the gpuwatch that wrote it, or set history.lake to an empty folder"
        )
