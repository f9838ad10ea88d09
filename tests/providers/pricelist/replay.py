"""Results of the public price lists' declarations for every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gpuwatch.providers.pricelist.declaration import built_in_sources
from gpuwatch.providers.pricelist.source_reader import SourceReader
from gpuwatch.providers.toolkit.currency import ExchangeRate
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "pricelist"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
RATES = {"USD": ExchangeRate("USD", 1.0), "EUR": ExchangeRate("EUR", 1.15, date(2026, 11, 20))}


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json"))}


def _read(path: Path) -> Any:
    source = built_in_sources()[path.name.removesuffix("_reconstructed.json")]
    reader = SourceReader(source, RATES.get, NOW)
    reader.add_page(json.loads(path.read_bytes()), source.places[1] if source.places else "")
    return reader.finish()
