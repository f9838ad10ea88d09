"""Every market, queried at once by one command, each through its stand-in on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuwatch import providers
from gpuwatch.cli import run
from gpuwatch.testing.bench import Bench
from tests.contracts.benches import BENCHES


@pytest.fixture
def markets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Open all stand-ins, and point the settings of this folder there; yields the providers' names."""
    found: list[Bench] = list(BENCHES.values())
    for bench in found:
        for name in providers.info(bench.name).key_names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("GPUWATCH_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    with ExitStack() as stack:
        sections = [_section(bench, stack.enter_context(bench.place()).url) for bench in found]
        (tmp_path / "gpuwatch.toml").write_text("\n".join(sections))
        yield [bench.name for bench in found]


def _section(bench: Bench, url: str) -> str:
    options = "".join(f"{key} = {json.dumps(value)}\n" for key, value in bench.options.items())
    key = f"api_key = {json.dumps(bench.key)}\n" if bench.key else ""
    head = f'[providers.{bench.name}]\nenabled = true\nbase_url = "{url}"\nsearch_interval = "0s"\n{key}'
    return f"{head}[providers.{bench.name}.options]\n{options}" if options else head


def test_offers_of_every_market_come_in_one_answer(markets: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    code = run(["offers", "--spot", "any", "--group-by", "provider", "--timeout", "60s", "--json"])
    out, err = capsys.readouterr()
    groups = json.loads(out)
    assert (code, err) == (0, "")
    assert {group["group"] for group in groups} == set(markets)
    for group in groups:
        assert group["cheapest"]["provider"] == group["group"]
        kinds = {kind.value for kind in providers.info(group["group"]).kinds}
        assert group["kind"] in kinds
        assert 0 < group["cheapest_usd_gpu_hour"] <= group["median_usd_gpu_hour"] < 1000
