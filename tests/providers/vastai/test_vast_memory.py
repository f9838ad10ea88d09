"""An answer of any size is never completely in memory: the process itself, with its libraries, is 50 MB."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import zlib

import pytest
from vast_double import a_row

from gpuwatch.testing.loopback import serving

CHILD = """
    import re, sys, time
    from datetime import UTC, datetime
    from gpuwatch import providers
    from gpuwatch.errors import ProviderError
    from gpuwatch.providers.toolkit.http.client import PooledHttpClient
    from gpuwatch.ports import ProviderSettings, Query

    http = PooledHttpClient()
    settings = ProviderSettings(name="vastai", base_url=sys.argv[1], search_interval_s=0.0)
    now = datetime(2026, 11, 21, tzinfo=UTC)
    adapter = providers.build(settings, http, lambda: now, time.monotonic, lambda s: None)
    try:
        print(len(adapter.market.search(Query(gpus=("H100 SXM",))).offers))
    except ProviderError as error:
        print(type(error).__name__, error)
    http.close()
    # not ru_maxrss: that begins with the memory of the process which started this one
    print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc"),
]


def _search(body: bytes, **headers: str) -> tuple[str, int]:
    with serving(lambda request, wire: wire.answer(body=body, **headers)) as server:
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CHILD), server.url], capture_output=True, text=True, check=True
        )
    reported, peak_mb = child.stdout.strip().split("\n")
    return reported, int(peak_mb)


@pytest.mark.parametrize("filling", [b" ", b'{"id":0},', b'"x",', b"["])
def test_a_bomb_of_100_mb_in_place_of_offers_stays_under_60_mb(filling: bytes) -> None:
    compressor = zlib.compressobj(9, wbits=31)
    piece = filling * (2**20 // len(filling))
    bomb = compressor.compress(b'{"offers":[') + b"".join(compressor.compress(piece) for _ in range(100))
    reported, peak_mb = _search(bomb + compressor.flush(), content_encoding="gzip")
    assert reported.startswith(("PayloadChanged", "NoRowUnderstood"))
    assert peak_mb <= 60


def test_a_market_of_10_000_offers_stays_under_60_mb() -> None:
    filler = {f"filler_{n}": n * 1.25 for n in range(100)}
    rows = [a_row(id=n, gpu_name="H100 SXM" if n % 20 == 0 else "RTX 4090") | filler for n in range(1, 10_001)]
    body = json.dumps({"offers": rows}).encode()
    assert len(body) > 20_000_000
    reported, peak_mb = _search(body)
    assert reported == "500"
    assert peak_mb <= 60
