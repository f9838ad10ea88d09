"""The catalogs: fetched when there is a new version, unpacked, read by the library, parsed into offers.

Other clouds the library queries itself: it runs in a thread, which is abandoned after its deadline.
"""

from __future__ import annotations

import csv
import io
import logging
import os
import re
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuwatch.domain.market.gpu_cards import WHOLE, gpu_fraction
from gpuwatch.domain.market.gpu_names import GpuName, catalog
from gpuwatch.domain.market.offer import Offer, OfferKind, OfferTerms
from gpuwatch.domain.market.spellings import socket_of
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError
from gpuwatch.installation import install_hint
from gpuwatch.ports import ProviderSettings, Query
from gpuwatch.ports.declarations import Tools
from gpuwatch.providers.gpuhunt import INFO, SELLERS
from gpuwatch.providers.toolkit.announced_end import is_ending
from gpuwatch.providers.toolkit.api_client import ApiClient, TtlCache
from gpuwatch.providers.toolkit.catalogue import merge_answers, query_in_turn
from gpuwatch.providers.toolkit.list_prices import TOO_FEW_ROWS, RowCountGuard, is_plausible, without_placeholders
from gpuwatch.providers.toolkit.post_processing import BasicMarket, ParseResult, RowSkipped, short_id
from gpuwatch.providers.toolkit.validation import number, usd_hour, whole, word

_POLL_S: Final = 0.05  # how often to check whether gpuwatch is stopping
_CLASSES: Final = {  # the library's modules and classes that may be used
    "daytona": "DaytonaProvider",
    "digitalocean": "DigitalOceanProvider",
    "hotaisle": "HotAisleProvider",
    "jarvislabs": "JarvisLabsProvider",
    "lium": "LiumProvider",
    "seeweb": "SeewebProvider",
    "vultr": "VultrProvider",
}


class TimeBox:
    """Runs what may hang. A hanging call is abandoned: its thread ends with the process, and it is not started again.

    Args:
        stop: ends every wait when set.
    """

    def __init__(self, stop: threading.Event) -> None:
        self._stop = stop
        self._running: dict[str, threading.Thread] = {}

    def run(self, name: str, call: Callable[[], Sequence[Any]], deadline_s: float) -> Sequence[Any]:
        """Return the result of `call`; passes on its errors.

        Raises:
            ProviderDown: it takes too long, an earlier call has not returned yet, or gpuwatch is stopping.
        """
        previous = self._running.get(name)
        if previous is not None and previous.is_alive():
            raise ProviderDown(f"gpuhunt: {name} has not answered an earlier request yet")
        results: list[Sequence[Any]] = []
        errors: list[Exception] = []

        def run_call() -> None:
            try:
                results.append(call())
            except Exception as error:  # raised again by the waiting thread
                errors.append(error)

        thread = self._running[name] = threading.Thread(target=run_call, name=f"gpuhunt {name}", daemon=True)
        thread.start()
        for _ in range(max(round(deadline_s / _POLL_S), 1)):
            thread.join(_POLL_S)
            if not thread.is_alive() or self._stop.is_set():
                break
        if errors:
            raise errors[0]
        if not results:
            raise ProviderDown(f"gpuhunt: {name}: no complete answer in time")
        return results[0]


def query_library(seller: str) -> Sequence[Any]:
    """Query the library's items of one cloud now. May hang.

    Raises:
        ProviderError: no answer, no key, or an answer that the library cannot read. Drops the library's own message: it
            may contain a URL with a key.
    """
    logging.getLogger("gpuhunt").setLevel(logging.CRITICAL)  # it logs complete errors, with their URLs
    try:
        provider_class = getattr(import_module(f"gpuhunt.providers.{seller}"), _CLASSES[seller])
        return [item for item in provider_class.from_env().get(balance_resources=False) if item.gpu_count != 0]
    except ImportError as error:
        raise ProviderDown(f"gpuhunt: this version of the library cannot query {seller}") from error
    except Exception as error:
        raise _error_text(seller, error) from None


def _error_text(seller: str, error: Exception) -> ProviderError:
    kind = type(error).__name__
    status = getattr(getattr(error, "response", None), "status_code", None)
    if kind == "MissingCredsError":
        return KeyRejected(f"gpuhunt: {seller} requires a key in the environment: {error}")
    if status in (401, 403):
        return KeyRejected(f"gpuhunt: {seller} rejects the key: {status}")
    if isinstance(error, OSError):  # includes the errors of the library's HTTP client
        return ProviderDown(f"gpuhunt: {seller}: {status or kind}")
    return PayloadChanged(f"gpuhunt: {seller}: the library cannot parse the answer: {kind}")


log = logging.getLogger(__name__)

_VERSION: Final = re.compile(rb"[0-9A-Za-z][0-9A-Za-z._-]{0,39}")
_VERSION_DAY: Final = re.compile(r"(20\d\d)(\d\d)(\d\d)(?!\d)")
_STALE_AFTER: Final = timedelta(days=3)  # catalogs are collected every hour
_ZIP_BYTES_MAX: Final = 32 * 2**20
_CSV_BYTES_MAX: Final = 128 * 2**20
_FOLDER: Final = "GPUHUNT_CATALOG_DIR"  # the library reads {seller}.csv from there, without a server
_ONLINE_NOTE: Final = (
    "asked through gpuhunt; whether it can be had is not told"  # word-check: allow - a value of the JSON
)
_VENDORS: Final = frozenset({"nvidia", "amd", "intel"})
# What these clouds are known to sell, if the catalog omits the socket. source: their own pages of machine types.
_SOCKETS: Final = {"aws": "sxm", "gcp": "sxm", "nebius": "sxm", "oci": "sxm", "verda": "sxm"}
_WRONG_MEMORY: Final = {("MI325X", 288.0): 256.0}  # the catalog's value → the card's
_OTHER_RENTAL: Final = re.compile(r"(?i)calendar|reserv|commit|capacity-block|cluster")  # "gcp-dws-calendar-mode"
_environment_lock = threading.Lock()  # gpuhunt takes its folder from the environment, which all threads share


class SellerCatalog(msgspec.Struct, frozen=True):
    """One seller's catalog: its version, and the library's rows of it."""

    version: str
    items: Sequence[Any]  # machines with GPUs
    unreadable_rows: int  # rows that the library could not read


class GpuhuntMarket(BasicMarket):
    """The market. Each poll checks for a new version once; unchanged catalogs are cached."""

    def __init__(self, settings: ProviderSettings, tools: Tools) -> None:
        super().__init__(settings, tools)
        self._client = ApiClient(settings, tools, headers={})
        self._sellers = _texts(settings, "sellers")
        self._online = _texts(settings, "online")
        self._time_box, self._timeout_s = TimeBox(tools.stop), settings.timeout_s
        self._catalogs: dict[str, SellerCatalog] = {}
        self._results: TtlCache[ParseResult] = TtlCache(settings.poll_every_s / 2, tools.monotonic)
        self._row_count_guard = RowCountGuard()
        self._lock = threading.Lock()  # one poll fetches; others use its result

    def _read(self, query: Query, now: datetime) -> ParseResult:
        need_library()
        catalogs = [(seller, partial(self._result_of, seller)) for seller in self._sellers]
        online = [(seller, partial(self._result_of, seller)) for seller in self._online]
        return merge_answers(chain(query_in_turn(catalogs, one_server=True), query_in_turn(online)))

    def _result_of(self, seller: str) -> ParseResult:
        with self._lock:
            fetch = self._refresh if seller in self._sellers else self._query_library
            return self._results.get(lambda: fetch(seller), seller)

    def _query_library(self, seller: str) -> ParseResult:
        """Return a cloud's prices, queried by the library. An empty list is an answer here. Raises ProviderError."""
        items = self._time_box.run(seller, partial(query_library, seller), self._timeout_s)
        return parse_items(items, seller, _ONLINE_NOTE, OfferKind.LISTED, self._tools.now())

    def _refresh(self, seller: str) -> ParseResult:
        """Return a seller's prices; fetches its newest catalog unless it is cached.

        Raises:
            ProviderError: no usable catalog.
        """
        version = self._client.request("GET", f"/{seller}/version", max_bytes=200).body.strip()
        if not _VERSION.fullmatch(version):
            raise PayloadChanged(f"{self.name}: the catalog version of {seller} is invalid")
        version_text, now = version.decode("ascii"), self._tools.now()
        seller_catalog = self._catalogs.get(seller)
        if seller_catalog is None or seller_catalog.version != version_text:
            archive = self._client.request("GET", f"/{seller}/{version_text}/catalog.zip", max_bytes=_ZIP_BYTES_MAX)
            seller_catalog = self._catalogs[seller] = _read(unpack_csv(archive.body, seller), seller, version_text)
        result = parse_items(seller_catalog.items, seller, *note_and_kind(seller_catalog.version, now), now)
        result.skipped |= (
            {"a row that gpuhunt cannot read": seller_catalog.unreadable_rows} if seller_catalog.unreadable_rows else {}
        )
        if not result.offers:
            raise PayloadChanged(f"{self.name}: the catalog of {seller} lists no GPU")
        if self._row_count_guard.is_too_few(seller, result.rows):
            result.note_missing(f"{seller}: {TOO_FEW_ROWS}")
        return result


def need_library() -> None:
    """Check the library. Raises ProviderDown: the extra is not installed."""
    try:
        import gpuhunt  # noqa: F401, PLC0415 - the only place that pays for its import
    except ImportError as error:
        raise ProviderDown(f"gpuhunt is not installed: {install_hint('gpuhunt')}") from error


def unpack_csv(archive: bytes, seller: str, max_bytes: int = _CSV_BYTES_MAX) -> bytes:
    """Return the CSV of a catalog's archive, within limits. Raises PayloadChanged."""
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as archive_file, archive_file.open(f"{seller}.csv") as table:
            text = table.read(max_bytes + 1)
    except (zipfile.BadZipFile, KeyError, OSError, EOFError, ValueError, zlib.error, NotImplementedError) as error:
        raise PayloadChanged(f"gpuhunt: the catalog of {seller} is not an archive with {seller}.csv") from error
    except RuntimeError as error:  # it requires a password
        raise PayloadChanged(f"gpuhunt: the catalog of {seller} cannot be opened") from error
    if len(text) > max_bytes:
        raise PayloadChanged(f"gpuhunt: the catalog of {seller} is too large")
    return text


def read_items(table: bytes, seller: str) -> Sequence[Any]:
    """Read one catalog with the library into `CatalogItem`s. Raises PayloadChanged: the library cannot read it."""
    from gpuhunt import Catalog as Library  # noqa: PLC0415

    logging.getLogger("gpuhunt").setLevel(logging.ERROR)  # it warns about each row
    with _environment_lock, tempfile.TemporaryDirectory(prefix="gpuwatch-gpuhunt-") as folder:
        (Path(folder) / f"{seller}.csv").write_bytes(table)
        previous_folder = os.environ.get(_FOLDER)
        os.environ[_FOLDER] = folder
        try:
            return list(Library(balance_resources=False, auto_reload=False).query(provider=seller))
        except Exception as error:  # an untrusted table may cause any error in a library
            raise PayloadChanged(f"gpuhunt: the catalog of {seller} cannot be read: {type(error).__name__}") from error
        finally:
            del os.environ[_FOLDER]
            os.environ |= {} if previous_folder is None else {_FOLDER: previous_folder}


def _read(table: bytes, seller: str, version: str) -> SellerCatalog:
    items = read_items(table, seller)
    with_gpus = [item for item in items if item.gpu_count != 0]
    rows = sum(1 for _ in csv.reader(io.StringIO(table.decode("utf-8", "replace"), newline=""))) - 1
    return SellerCatalog(version, with_gpus, max(rows - len(items), 0))


def note_and_kind(version: str, observed_at: datetime) -> tuple[str, OfferKind]:
    """Return the note for a catalog's rows, and their kind: rows that were collected days ago are historical."""
    collected_at = _collected_at(version)
    is_old = collected_at is not None and observed_at - collected_at > _STALE_AFTER
    note = f"gpuhunt's catalog {version}; the age of its prices is not told"  # word-check: allow - a value of the JSON
    return note, OfferKind.HISTORY if is_old else OfferKind.LISTED


def parse_items(items: Iterable[Any], seller: str, note: str, kind: OfferKind, observed_at: datetime) -> ParseResult:
    """Parse the offers of one seller. Pure.

    Args:
        note: the source of the prices, for every offer.
        observed_at: the last check that this was the newest version; the age of the prices is unknown.
    """
    result = ParseResult()
    shared: dict[OfferTerms, OfferTerms] = {}
    for item in items:
        result.rows += 1
        if _is_other_rental(item) or is_ending(item.provider_data, observed_at):
            continue
        with result.counting_skips():
            offer = _offer(item, seller, note, observed_at)
            terms = shared.setdefault(offer.terms, offer.terms)
            result.offers.append(msgspec.structs.replace(offer, kind=kind, terms=terms))
    result.offers = without_placeholders(result.offers, result)
    return result


def _is_other_rental(item: Any) -> bool:
    """Whether it is neither on demand nor spot: reserved by calendar, or a cluster; gpuhunt says so by a flag alone."""
    flags = item.flags if isinstance(item.flags, list | tuple) else ()
    return any(_OTHER_RENTAL.search(flag) for flag in flags if isinstance(flag, str))


def _offer(item: Any, seller: str, note: str, observed_at: datetime) -> Offer:
    instance, wire, region = word(item.instance_name, 100), word(item.gpu_name), word(item.location, 60)
    count, price = whole(item.gpu_count, 1, 1024), usd_hour(item.price)
    if count is None:
        raise RowSkipped("gpu_count: out of range")
    if price is None or not is_plausible(price, count):
        raise RowSkipped("price: none that anybody would ask")
    if str(getattr(item.gpu_vendor, "value", item.gpu_vendor)) not in _VENDORS:
        raise RowSkipped("an accelerator that is no GPU")
    if not (instance and wire and region):
        raise RowSkipped("a name is missing")
    memory = number(item.gpu_memory, 0.5, 2000)
    memory = memory if memory is None else _WRONG_MEMORY.get((wire, memory), memory)
    gpu = resolve_gpu(seller, instance, wire, memory)
    identity = short_id(f"{SELLERS.get(seller, seller)}/{instance}/{region}/{wire}")
    return Offer(
        provider=INFO.name,
        offer_id=short_id(f"{identity}/{count}/{'spot' if item.spot else 'on-demand'}"),
        machine_id=identity,
        gpu=gpu.name,
        gpu_family=gpu.family,
        gpu_wire=wire,
        gpu_known=gpu.known,
        gpu_count=count,
        gpu_memory_gib=memory,
        spot=bool(item.spot),
        quoted_usd_hour=price,
        quoted_disk_gb=number(item.disk_size, 0.0, 1e6) or 0.0,
        disk_usd_gb_month=None,
        observed_at=observed_at,
        region=region,
        vcpu=number(item.cpu, 0.1, 1e5),
        ram_gib=number(item.memory, 0.1, 1e6),
        cpu_arch="arm64" if str(getattr(item.cpu_arch, "value", "")) == "arm" else None,
        terms=_terms(seller, instance, gpu_fraction(wire), gpu, note),
    )


def _terms(seller: str, instance: str, fraction: float, gpu: GpuName, note: str) -> OfferTerms:
    return OfferTerms(
        seller=SELLERS.get(seller, seller),
        instance_type=instance,
        gpu_fraction=min(gpu_fraction(instance), fraction, WHOLE),
        note=note if gpu.reason is None else f"{gpu.reason}; {note}",
    )


def resolve_gpu(seller: str, instance: str, wire: str, memory_gib: float | None) -> GpuName:
    """Return the card: by its name, by its machine type, by what this cloud is known to sell; else undetermined."""
    found = catalog().resolve(wire, memory_gib)
    if found.certain:
        return found
    machine = catalog().resolve(instance, memory_gib)
    if machine.known and machine.certain and machine.name in found.candidates:
        return machine
    return catalog().resolve(wire, memory_gib, socket_of(instance) or _SOCKETS.get(seller))


def _collected_at(version: str) -> datetime | None:
    """Return the end of the day in a version ("20260818-42"); None: there is none."""
    found = _VERSION_DAY.match(version)
    if found is None:
        return None
    try:
        return datetime(int(found[1]), int(found[2]), int(found[3]), tzinfo=UTC) + timedelta(days=1)
    except ValueError:
        return None


def _texts(settings: ProviderSettings, option: str) -> tuple[str, ...]:
    values = settings.options.get(option)
    return tuple(map(str, values)) if isinstance(values, tuple) else ()
