"""What the declarations of public price lists make of every recorded answer."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from gpuwatch.adapting.currency import Rate
from gpuwatch.providers.pricelist.declared import built_in
from gpuwatch.providers.pricelist.reading import Reader

RECORDED = Path(__file__).parents[2] / "recorded" / "pricelist"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
RATES = {"USD": Rate("USD", 1.0), "EUR": Rate("EUR", 1.15, date(2026, 11, 20))}


def replay() -> dict[str, Any]:
    return {path.name: _read(path) for path in sorted(RECORDED.glob("*.json"))}


def _read(path: Path) -> Any:
    source = built_in()[path.name.removesuffix("_reconstructed.json")]
    reader = Reader(source, RATES.get, NOW)
    reader.page(json.loads(path.read_bytes()), source.places[1] if source.places else "")
    return reader.done()
