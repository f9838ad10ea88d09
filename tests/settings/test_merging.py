"""One settings tree, split at random between its sources, gives the same settings as all of it in the file."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.errors import SettingsError
from gpuwatch.settings import Settings, load
from gpuwatch.settings.show import origins
from tests.drawn import examples

Tree = dict[str, Any]
_PRICES = st.decimals(min_value="0.000001", max_value="999", places=28).map(lambda one: one.normalize())
_FILE, _DOTENV, _VARIABLE, _JSON = "file", ".env", "variable", "json"


def _tables(required: dict[str, st.SearchStrategy[Any]], **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Tree]:
    return st.fixed_dictionaries(required, optional=optional)


_TREES = _tables(
    {},
    timezone=st.sampled_from(["UTC", "Europe/Berlin"]),
    dry_run=st.just(True),
    budget=_tables({}, max_usd_hour=_PRICES, max_usd_day=_PRICES, max_instances=st.integers(1, 99)),
    record=_tables({}, gpu=st.lists(st.sampled_from(["H100", "A100", "4090"]), min_size=1, max_size=2)),
    launch=_tables({}, gather=st.sampled_from(["0s", "0.5s", "3s"])),
    web=_tables({}, enabled=st.booleans(), trusted_hosts=st.just(["a.example"])),
    providers=_tables(
        {},
        vastai=_tables(
            {},
            api_key=st.sampled_from(["12345", "true", '{"a":1}', "abc"]),
            commission=st.just(Decimal("0.25"))
            | _tables({"rate": st.sampled_from([Decimal("0.1"), Decimal("0.30"), 2])})
            | _tables({"rate": st.just(Decimal("0.2")), "mode": st.just("included")}),
            rows_per_day=st.integers(0, 10**6),
            enabled=st.booleans(),
            poll_every=st.sampled_from(["5s", "1m"]),
        ),
        aws=_tables({"options": _tables({"regions": st.just(["us-east-1"])})}),
    ),
    notify=_tables(
        {},
        quiet_hours=st.just(["22:00-08:00"]),
        telegram=_tables({"bot_token": st.just("1:x"), "chat_id": st.integers(-9, 9)}),
        apprise=_tables({"urls": st.just(["ntfy://a", "ntfy://b"])}),
    ),
    watch=st.lists(
        _tables(
            {"name": st.just("one"), "gpu": st.just(["H100"]), "max_price": _PRICES.filter(lambda one: one < 4)},
            min_vram_gib=st.integers(1, 80),
        ),
        max_size=1,
    ),
)  # fmt: skip


def _leaves(tree: Tree, above: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    found = []
    for key, value in tree.items():
        found += _leaves(value, (*above, key)) if isinstance(value, dict) else [((*above, key), value)]
    return found


def _text(value: Any) -> str:
    """A value as TOML and as JSON, with every digit; tables as JSON alone."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return f"{value:f}" if isinstance(value, Decimal) else json.dumps(value)


def _toml(leaves: list[tuple[tuple[str, ...], Any]]) -> str:
    lines = [f"{'.'.join(path)} = {_text(value)}" for path, value in leaves if path != ("watch",)]
    for path, value in leaves:
        for watch in value if path == ("watch",) else []:
            lines += ["[[watch]]", *(f"{key} = {_text(one)}" for key, one in watch.items())]
    return "\n".join(lines) + "\n"


def _variable(path: tuple[str, ...], value: Any) -> tuple[str, str]:
    return "GPUWATCH_" + "__".join(path).upper(), value if isinstance(value, str) else _text(value)


def _json_tables(leaves: list[tuple[tuple[str, ...], Any]]) -> dict[str, str]:
    """One variable for each table at the top."""
    tables: Tree = {}
    for path, value in leaves:
        table = tables
        for part in path[:-1]:
            table = table.setdefault(part, {})
        table[path[-1]] = value
    return dict(_variable((key,), value) for key, value in tables.items())


def _loaded(toml: str, dotenv: dict[str, str], env: dict[str, str]) -> Settings:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "gpuwatch.toml").write_text(toml)
        Path(folder, ".env").write_text("".join(f"{name}='{text}'\n" for name, text in dotenv.items()))
        loaded = load(env=env | {"STATE_DIRECTORY": "/state"}, cwd=Path(folder))
    return msgspec.structs.replace(loaded, source_file=None)


@settings(max_examples=examples(200))
@given(_TREES, st.randoms(use_true_random=False))
def test_how_settings_are_split_between_their_sources_does_not_matter(tree: Tree, random: Any) -> None:
    leaves = _leaves(tree)
    places = {path: random.choice([_FILE, _DOTENV, _VARIABLE, _JSON]) for path, _ in leaves}
    parts = {
        place: [(path, value) for path, value in leaves if places[path] == place]
        for place in (_FILE, _DOTENV, _VARIABLE, _JSON)
    }
    env = _json_tables(parts[_JSON]) | dict(_variable(*one) for one in parts[_VARIABLE])
    split = _loaded(_toml(parts[_FILE]), dict(_variable(*one) for one in parts[_DOTENV]), env)
    assert split == _loaded(_toml(leaves), {}, {})


P = "GPUWATCH_PROVIDERS__VASTAI__"
BARE = "[providers.vastai]\ncommission = 0.3\n"


@pytest.mark.parametrize(
    ("toml", "dotenv", "env"),
    [
        (BARE, {}, {f"{P}COMMISSION__MODE": "included"}),
        (BARE, {f"{P}COMMISSION__MODE": "included"}, {}),
        (BARE, {}, {"GPUWATCH_PROVIDERS__VASTAI": '{"commission": {"mode": "included"}}'}),
        ("", {}, {f"{P}COMMISSION": "0.3", f"{P}COMMISSION__MODE": "included"}),
        ("", {f"{P}COMMISSION": "0.3"}, {f"{P}COMMISSION__MODE": "included"}),
        ("", {f"{P}COMMISSION__MODE": "included"}, {f"{P}COMMISSION": "0.3"}),
        ("", {}, {"GPUWATCH_PROVIDERS": '{"vastai": {"commission": 0.3}}', f"{P}COMMISSION__MODE": "included"}),
        ("", {}, {"GPUWATCH_PROVIDERS__VASTAI": '{"commission": 0.3}', f"{P}COMMISSION__MODE": "included"}),
    ],
)
def test_a_bare_commission_keeps_its_rate_whatever_sets_its_mode(
    toml: str, dotenv: dict[str, str], env: dict[str, str]
) -> None:
    assert _loaded(toml, dotenv, env).providers["vastai"].commission == Commission("0.3", CommissionMode.INCLUDED)


def test_a_source_wins_over_a_later_one_whatever_the_depth_of_its_keys() -> None:
    found = _loaded("", {"GPUWATCH_BUDGET__MAX_USD_HOUR": "5"}, {"GPUWATCH_BUDGET": '{"max_usd_hour": 3}'})
    assert found.budget.max_usd_hour == 3


@pytest.mark.parametrize(
    ("name", "path", "needed"),
    [
        ("GPUWATCH_TIMEZONE__X", "timezone.x", "GPUWATCH_TIMEZONE"),
        ("GPUWATCH_WATCH__0__MAX_PRICE", "watch.0.max_price", "GPUWATCH_WATCH"),
        (f"{P}POLL_EVERY__X", "providers.vastai.poll_every.x", "GPUWATCH_PROVIDERS"),
    ],
)
@pytest.mark.parametrize("place", ["the file", ".env", "the environment"])
def test_a_key_below_one_that_is_no_table_is_a_fault_and_never_dropped(
    name: str, path: str, needed: str, place: str
) -> None:
    texts = {"GPUWATCH_TIMEZONE": "UTC", "GPUWATCH_WATCH": "[]", f"{P}POLL_EVERY": "3s"}
    toml = 'timezone = "UTC"\nwatch = []\n[providers.vastai]\npoll_every = "3s"\n' if place == "the file" else ""
    with pytest.raises(SettingsError) as fault:
        _loaded(toml, texts if place == ".env" else {}, {name: "1"} | (texts if place == "the environment" else {}))
    assert fault.value.faults == (f"{name}: {path}: expected a table above it; set {needed} as JSON",)


def test_each_key_has_the_origin_that_set_it(tmp_path: Path) -> None:
    """Also next to a table of JSON, which sets only what it contains."""
    (tmp_path / "gpuwatch.toml").write_text("[budget]\nmax_usd_day = 5\n")
    (tmp_path / ".env").write_text("GPUWATCH_BUDGET__MAX_INSTANCES=2\nGPUWATCH_BUDGET__MAX_USD_HOUR=1\n")
    env = {"GPUWATCH_BUDGET": '{"max_usd_hour": 3}', "STATE_DIRECTORY": "/state"}
    found = {row.key: (str(row.value), row.origin) for row in origins(env=env, cwd=tmp_path)[1]}
    assert found["budget.max_usd_hour"] == ("3", "env GPUWATCH_BUDGET")
    assert found["budget.max_usd_day"] == ("5", "file")
    assert found["budget.max_instances"] == ("2", "env GPUWATCH_BUDGET__MAX_INSTANCES (.env)")
    assert found["budget.max_usd_month"] == ("None", "default")


def test_keys_of_a_file_are_no_arguments_of_the_library() -> None:
    with pytest.raises(SettingsError) as fault:
        _loaded('_env_file = "x"\n_secrets_dir = "y"\nsources = 1\nTIMEZONE = "UTC"\n', {}, {})
    assert [line.split(": ")[1] for line in fault.value.faults] == ["_env_file", "_secrets_dir", "sources", "TIMEZONE"]


def test_the_librarys_debug_log_quotes_no_secret(tmp_path: Path) -> None:
    """It would log what every source holds."""
    code = "import logging; logging.basicConfig(level=logging.DEBUG); from gpuwatch.settings import load; load()"
    env = {"PYDANTIC_SETTINGS_DEBUG": "1", "VAST_API_KEY": "canary", "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert "canary" not in done.stdout + done.stderr
