"""The script of docs/architecture.md for other programs."""

from __future__ import annotations

import re
from typing import Any

from gpuwatch.emulator import Marketplace
from tests.checkout import ROOT
from tests.cli.conftest import Shell

PAGE = ROOT / "docs" / "architecture.md"


def test_the_script_lists_offers_and_launches(shell: Shell, market: Marketplace) -> None:
    market.publish(gpu="H100 SXM", count=1, usd_hour=2.0)
    shell.new_store()
    (script,) = re.findall(r"(?ms)^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    exec(script, names)
    assert [offer.price_usd_hour for offer in names["offers"]] == [2.4]
    assert names["launches"] == []
