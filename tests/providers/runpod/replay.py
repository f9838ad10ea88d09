"""The RunPod adapter's results for every recorded answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.ports.http import HttpReply
from gpuwatch.providers.runpod.catalogue import CatalogueRequest, parse_catalogue
from gpuwatch.providers.runpod.client import graphql_data, ordering_error, parse_windows, reading_error, wait_s
from gpuwatch.providers.runpod.create import parse_created
from gpuwatch.providers.runpod.launcher import charges_of
from gpuwatch.providers.runpod.market import parse_keyless
from gpuwatch.providers.runpod.pods import RestartDetector, parse_pods
from gpuwatch.providers.toolkit.error_mapping import read_error_body
from gpuwatch.providers.toolkit.post_processing import ParseResult
from tests.checkout import TESTS
from tests.golden import reported, shown

RECORDED = TESTS / "recorded" / "runpod"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
CLOUDS = ("SECURE", "COMMUNITY")
# Recorded for the emulator: the adapter never requests these.
NOT_ASKED_FOR = re.compile(
    r"graphql-docs-.*|graphql-(myself-pods|pod|podfind\w*|podterminate)-.*|graphql-utilisation-.*"
    r"|v1-pod-schema-.*|v2-catalog-datacenters-.*|v2-pods-create-request"
)


def replay() -> dict[str, Any]:
    paths = sorted(RECORDED.glob("*.json"))
    return {path.name: _read(path) for path in paths if not NOT_ASKED_FOR.fullmatch(path.stem)}


def _read(path: Path) -> Any:
    readers: Mapping[str, Callable[[Any], Any]] = {
        "v2-catalog-gpus": lambda value: {cloud: _offers(value, cloud) for cloud in CLOUDS},
        "v2-catalog-gpu-by-id": lambda row: {cloud: _offers({"gpus": [row]}, cloud) for cloud in CLOUDS},
        "v2-pods-list": parse_pods,
        "v2-pod-get": lambda row: parse_pods({"pods": [row]}),
        "v2-pods-create-201": _made,
        "v2-billing": lambda value: charges_of(value, date(2026, 5, 31), date(2026, 6, 2), NOW),
        "v2-ratelimit": _quota,
        "graphql-gputypes": _types,
        "graphql-error": lambda value: reported(lambda: graphql_data(value, "runpod")),
        "graphql-uptime": _series,
        "gpu-types-table": _names,
        "v1-gputypeids": lambda ids: _names([{"id": one} for one in ids]),
    }  # fmt: skip
    body = path.read_bytes()
    if found := re.fullmatch(r"v[12]-error-(\d{3}).*", path.stem):
        return _refusals(HttpReply(int(found[1]), {}, body))
    return next(reader for prefix, reader in readers.items() if path.name.startswith(prefix))(json.loads(body))


def _offers(value: Any, cloud: str) -> ParseResult:
    return parse_catalogue(value, CatalogueRequest(cloud, 2, 100.0, NOW))


def _keyless(value: Any) -> ParseResult:
    """It was recorded with other fields than we request, so none of it counts."""
    return parse_keyless(value, CatalogueRequest("SECURE", 1, 0.0, NOW))


def _types(value: Any) -> Any:
    return _names(value["data"]["gpuTypes"]) | {"offers": reported(lambda: _keyless(value))}


def _made(row: Any) -> Any:
    return [parse_created(HttpReply(201, {}, json.dumps(row).encode())), *parse_pods({"pods": [row]})]


def _names(rows: list[dict[str, Any]]) -> dict[str, Any]:
    resolved = {row["id"]: catalog().resolve(row["id"], row.get("memoryInGb")) for row in rows}
    return {"gpus": {one: name.name if name.known else None for one, name in resolved.items()}}


def _quota(headers: dict[str, str]) -> Any:
    small = {name.lower(): value for name, value in headers.items()}
    without = {name: value for name, value in small.items() if name != "retry-after"}
    waits = [wait_s(HttpReply(429, one, b"{}"), NOW) for one in (small, without)]
    return {"windows": parse_windows(small["ratelimit"]), "wait_s": waits}


def _series(value: Any) -> Any:
    """The states of a pod whose container restarts repeatedly, poll by poll."""
    restarts, states = RestartDetector(), []
    row = json.loads((RECORDED / "v2-pod-get-200.json").read_bytes())
    for at_s, uptime, *_rest in value["rows"]:
        shown = row | {"runtime": {} if uptime is None else row["runtime"] | {"uptime": uptime}}
        [instance] = restarts.update(parse_pods({"pods": [shown]}), at_s)
        states.append([round(at_s), uptime, instance.state, instance.status])
    return states


def _refusals(reply: HttpReply) -> Any:
    reported = read_error_body(reply)
    return {
        name: shown(of("runpod", reported, reply, NOW))
        for name, of in (("asking", reading_error), ("ordering", ordering_error))
    }
