"""`gpuwatch check --gpu H100 --max-price 3.50`: one watch in place of those of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.watches.watch import Action, SpotPolicy
from gpuwatch.errors import SettingsError, UsageError
from gpuwatch.secret import Secret
from gpuwatch.settings import from_flags


def test_flags_make_one_watch() -> None:
    settings = from_flags(["H100", "rtx4090"], "3.50", count="2-8", spot="any", providers=["vastai"], env={})
    (watch,) = settings.watches
    assert watch.gpu_names == ("H100 SXM", "H100 PCIe", "H100 NVL", "H100", "RTX 4090", "RTX 4090 48GB")
    assert str(watch.max_price_usd_gpu_hour) == "3.50"
    assert (watch.gpu_count_min, watch.gpu_count_max) == (2, 8)
    assert (watch.spot, watch.action, watch.providers) == (SpotPolicy.ANY, Action.ALERT, ("vastai",))
    assert settings.source_file is None


def test_the_environment_counts_but_not_its_watches() -> None:
    env = {
        "GPUWATCH_PROVIDERS__VASTAI__BASE_URL": "http://127.0.0.1:9",
        "VAST_API_KEY": "abc",
        "GPUWATCH_WATCH": '[{"name": "x"}]',
    }
    settings = from_flags(["H100"], "3", env=env)
    assert settings.providers["vastai"].base_url == "http://127.0.0.1:9"
    assert settings.providers["vastai"].api_key == Secret("abc")
    assert len(settings.watches) == 1


def test_a_file_named_beside_the_flags_counts_but_not_its_watches(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[providers.lambda]\napi_key = "k"\n[[watch]]\nname = "own"\ngpu = "T4"\nmax_price = 1\n')
    settings = from_flags(["H100"], "3", config=str(file), env={})
    assert set(settings.providers) == {"vastai", "lambda"}
    assert [watch.name for watch in settings.watches] == ["H100"]


def test_a_file_that_is_found_counts_but_not_its_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One folder, one price: `offers` and `check --gpu` use the same commission, key and address."""
    (tmp_path / "gpuwatch.toml").write_text(
        '[providers.vastai]\ncommission = 0\n[[watch]]\nname = "own"\ngpu = "T4"\nmax_price = 1\n'
    )
    monkeypatch.chdir(tmp_path)
    settings = from_flags(["H100"], "3", env={})
    assert settings.providers["vastai"].commission.rate == 0
    assert [watch.name for watch in settings.watches] == ["H100"]


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({"gpu": ["H100 SXN"]}, "--gpu: unknown GPU 'H100 SXN'; did you mean H100 SXM"),
        ({"max_price": "cheap"}, "--max-price: expected a number"),
        ({"max_price": "0"}, "--max-price: expected a number above 0"),
        ({"max_price": "NaN"}, "--max-price: expected a finite number"),
        ({"count": "many"}, "--count: expected a number such as 4"),
        ({"count": "0"}, "--count: expected a number from 1"),
        ({"count": "4-2"}, "--count: expected min to be at most max"),
        ({"spot": "maybe"}, "--spot: expected 'no', 'only', 'any' or 'first'"),
        ({"gpu": ["H100: watch X"]}, "--gpu: unknown GPU 'H100: watch X'"),  # no part of a name is a part of the text
        ({"providers": ["nowhere"]}, "--provider: unknown name 'nowhere'; expected one of: "),
    ],
)
def test_a_bad_flag_is_named(flags: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        from_flags(**{"gpu": ["H100"], "max_price": "3", "env": {}, **flags})
    assert str(caught.value).startswith(expected)


def test_a_bad_environment_is_a_fault_of_the_settings() -> None:
    with pytest.raises(SettingsError):
        from_flags(["H100"], "3", env={"GPUWATCH_TIMEZONE": "Mars"})
