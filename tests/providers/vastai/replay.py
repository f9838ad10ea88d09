"""The vast.ai adapter's results for every recorded answer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gpuwatch.ports import Instance, InstanceState
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.toolkit.error_mapping import read_error_body as body_of
from gpuwatch.providers.vastai.answer_parser import drift, parse_offers
from gpuwatch.providers.vastai.charges import charges_of, charges_page, increase_rows, increases_of
from gpuwatch.providers.vastai.client import ordering_error, reading_error
from gpuwatch.providers.vastai.create import parse_created
from gpuwatch.providers.vastai.instances import parse_page
from gpuwatch.providers.vastai.launcher import parse_credit
from gpuwatch.providers.vastai.rows import RowReader
from tests.checkout import TESTS
from tests.golden import reported, shown

RECORDED = TESTS / "recorded" / "vastai"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
CHARGED_DAYS = date(2024, 11, 1), date(2024, 11, 30)
RENTED = Instance(
    instance_id="123", label=None, state=InstanceState.RUNNING, status="running", gpu_count=2, listed_usd_hour=0.75,
    stopped_usd_hour=0.03,
)  # fmt: skip

# Recorded for the emulator and for people; the adapter never requests these.
NOT_ASKED_FOR = frozenset(
    {
        "bundles_real_2026-03_odd_rows.why.json",
        "gpu_names.json",
        "instance_show_docs_example.json",
        "instances_v1_states_reconstructed.why.json",
        "rate_limits_2026-08.json",
        "webhook_event_docs_example.json",
    }
)


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json")) if path.name not in NOT_ASKED_FOR}


def _read(path: Path) -> Any:
    body = path.read_bytes()
    if path.name == "bundles_dual_listed_reconstructed.json":
        answers = json.loads(body)
        return {
            "on_demand": _search(json.dumps(answers["on_demand_response"]).encode()),
            "bid": _search(json.dumps(answers["bid_response"]).encode(), spot=True),
        }
    readers: Mapping[str, Callable[[bytes], Any]] = {
        "bundles_": _search,
        "offer_real_": lambda offer: _search(b'{"offers": [%b]}' % offer),
        "offer_keys_": lambda keys: {"drift": drift(json.loads(keys)["keys_sorted"])},
        "instances_v1_": _instances,
        "create_responses": lambda cases: [_create(case) for case in json.loads(cases)],
        "errors": lambda cases: [_refusals(case) for case in json.loads(cases)],
        "charges_": lambda body: charges_of(charges_page(body).results, *CHARGED_DAYS, NOW),
        "pending_price_": lambda body: increases_of(increase_rows(body), [RENTED]),
        "users_current": lambda user: {"credit_usd": parse_credit(user)},
    }
    return next(reader for prefix, reader in readers.items() if path.name.startswith(prefix))(body)


def reply_of(case: Mapping[str, Any]) -> HttpReply:
    """Return a recorded answer as the network would."""
    headers = {name.lower(): value for name, value in case.get("headers", {}).items()}
    body = case["body_text"].encode() if "body_text" in case else json.dumps(case["body"]).encode()
    return HttpReply(case["http_status"], headers, body)


def _search(body: bytes, spot: bool = False) -> Any:
    return reported(lambda: parse_offers(body, RowReader(spot, 8.0, NOW)))


def _instances(body: bytes) -> Any:
    return reported(lambda: parse_page(body)[1])


def _create(case: Mapping[str, Any]) -> Any:
    return {"case": case["case"], "outcome": reported(lambda: parse_created(reply_of(case), NOW))}


def _refusals(case: Mapping[str, Any]) -> Any:
    reply = reply_of(case)
    return {
        "endpoint": case["endpoint"],
        "status": case["http_status"],
        "asking": shown(reading_error("vastai", body_of(reply), reply, NOW)),
        "ordering": shown(ordering_error(reply, NOW)),
    }
