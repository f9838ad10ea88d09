"""The sources of settings, and their precedence."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuwatch import notifiers
from gpuwatch.domain.market.money import Commission, CommissionMode
from gpuwatch.errors import SettingsError
from gpuwatch.providers.toolkit.http.client import PooledHttpClient
from gpuwatch.settings import load
from gpuwatch.settings.reference import json_schema

WATCH = '[[watch]]\nname = "one"\ngpu = "H100"\nmax_price = 3.60\n'


def test_without_any_source_vastai_is_watched_and_nothing_is_rented(loaded: Any) -> None:
    settings = loaded()
    assert settings.dry_run is True
    assert settings.timezone == "UTC"
    assert settings.source_file is None
    assert list(settings.providers) == ["vastai"]
    vast = settings.providers["vastai"]
    assert vast.base_url == "https://console.vast.ai"
    assert vast.commission == Commission("0.20", CommissionMode.ON_TOP)
    assert (vast.poll_every_s, vast.sweep_every_s, vast.search_interval_s, vast.rows_per_day) == (30, None, 6, 20_000)


def test_prices_are_exact_as_written(loaded: Any) -> None:
    assert str(loaded(WATCH).watches[0].max_price_usd_gpu_hour) == "3.60"


def test_the_environment_wins_over_the_file(loaded: Any) -> None:
    env = {"GPUWATCH_PROVIDERS__VASTAI__BASE_URL": "http://127.0.0.1:9", "GPUWATCH_DRY_RUN": "false"}
    settings = loaded('dry_run = true\n[providers.vastai]\nbase_url = "http://file"\n', env=env)
    assert settings.providers["vastai"].base_url == "http://127.0.0.1:9"
    assert settings.dry_run is False


def test_the_real_environment_wins_over_dotenv(loaded: Any) -> None:
    dotenv = "GPUWATCH_TIMEZONE=Europe/Berlin\nGPUWATCH_BUDGET__MAX_INSTANCES='3'  # three\n"
    settings = loaded("", dotenv, env={"GPUWATCH_TIMEZONE": "Asia/Tokyo"})
    assert settings.timezone == "Asia/Tokyo"
    assert settings.budget.max_instances == 3


def test_an_empty_variable_is_as_if_it_were_not_there(loaded: Any) -> None:
    assert loaded('timezone = "Asia/Tokyo"', env={"GPUWATCH_TIMEZONE": ""}).timezone == "Asia/Tokyo"


def test_every_plain_setting_at_the_top_is_set_by_its_variable(loaded: Any) -> None:
    """A text, a number or a switch as it is, without JSON."""
    given = {"owner": "mine", "timezone": "Asia/Tokyo", "language": "ru", "dry_run": "false"}
    given["database_url"] = "sqlite:////srv/other.db"
    tables = ("array", "object")
    plain = {
        name for name, one in json_schema()["properties"].items() if one.get("type") not in tables and "$ref" not in one
    }
    assert set(given) == plain, "a new setting: what could its variable hold?"
    settings = loaded("", env={f"GPUWATCH_{name.upper()}": text for name, text in given.items()})
    assert {name: getattr(settings, name) for name in given} == given | {"dry_run": False}


def test_tables_and_lists_in_the_environment_are_json(loaded: Any) -> None:
    env = {
        "GPUWATCH_BUDGET": '{"max_usd_hour": 1.10}',
        "GPUWATCH_RECORD__GPU": '["RTX 3090"]',
        "GPUWATCH_WATCH": '[{"name": "env", "gpu": "H100", "max_price": 0.1}]',
    }
    settings = loaded("[budget]\nmax_usd_day = 5\n" + WATCH, env=env)
    assert str(settings.budget.max_usd_hour) == "1.10"
    assert settings.budget.max_usd_day == Decimal(5)
    assert settings.record.gpu_names == ("RTX 3090",)
    assert [watch.name for watch in settings.watches] == ["env"]


def test_a_deeper_variable_adds_to_a_bare_commission(loaded: Any) -> None:
    env = {"GPUWATCH_PROVIDERS__VASTAI__COMMISSION__MODE": "included"}
    settings = loaded("[providers.vastai]\ncommission = 0.1\n", env=env)
    assert settings.providers["vastai"].commission == Commission("0.1", CommissionMode.INCLUDED)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("0", Commission("0", CommissionMode.ON_TOP)),
        ("0.20", Commission("0.20", CommissionMode.ON_TOP)),
        ('{ rate = 0.25, mode = "included" }', Commission("0.25", CommissionMode.INCLUDED)),
        ('{ rate = 0.25, mode = "from_offer" }', Commission("0.25", CommissionMode.FROM_OFFER)),
    ],
)
def test_a_bare_commission_is_on_top(loaded: Any, written: str, meant: Commission) -> None:
    assert loaded(f"[providers.vastai]\ncommission = {written}\n").providers["vastai"].commission == meant


def test_files_are_looked_for_in_order(tmp_path: Path) -> None:
    """--config, $GPUWATCH_CONFIG, the current folder, the user's folder: each is used only without the earlier ones."""
    places = [
        tmp_path / name for name in ("flag.toml", "named.toml", "here/gpuwatch.toml", "xdg/gpuwatch/gpuwatch.toml")
    ]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
    env = {"GPUWATCH_CONFIG": str(places[1]), "XDG_CONFIG_HOME": str(tmp_path / "xdg")}
    here = tmp_path / "here"
    assert load(str(places[0]), env=env, cwd=here).source_file == str(places[0])
    assert load(env=env, cwd=here).source_file == str(places[1])
    del env["GPUWATCH_CONFIG"]
    assert load(env=env, cwd=here).source_file == str(places[2])
    places[2].unlink()
    assert load(env=env, cwd=here).source_file == str(places[3])


@pytest.mark.parametrize("kind", ["a folder", "a link to nothing"])
def test_a_file_that_cannot_be_read_is_not_skipped_for_the_next(tmp_path: Path, kind: str) -> None:
    """The settings of another place may have other limits."""
    here, own = tmp_path / "here" / "gpuwatch.toml", tmp_path / "xdg" / "gpuwatch" / "gpuwatch.toml"
    own.parent.mkdir(parents=True)
    own.write_text("")
    here.parent.mkdir()
    if kind == "a folder":
        here.mkdir()
    else:
        here.symlink_to(tmp_path / "nothing")
    with pytest.raises(SettingsError, match=r"gpuwatch\.toml: cannot read the file"):
        load(env={"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, cwd=here.parent)


def test_the_users_folder_is_below_home_by_default(tmp_path: Path) -> None:
    file = tmp_path / ".config" / "gpuwatch" / "gpuwatch.toml"
    file.parent.mkdir(parents=True)
    file.write_text("")
    (tmp_path / "empty").mkdir()
    env = {"HOME": str(tmp_path)}
    assert load(env=env, cwd=tmp_path / "empty").source_file == str(file)


@pytest.mark.parametrize(("config", "env"), [("no.toml", {}), (None, {"GPUWATCH_CONFIG": "no.toml"})])
def test_a_named_file_that_is_not_there_is_a_fault(faults: Any, config: str | None, env: dict[str, str]) -> None:
    (fault,) = faults("", config=config, env=env)
    assert fault.startswith("no.toml: no such file")


def test_a_byte_order_mark_in_the_file_is_no_fault(loaded: Any) -> None:
    assert loaded(b'\xef\xbb\xbftimezone = "Asia/Tokyo"\r\n').timezone == "Asia/Tokyo"


@pytest.mark.parametrize("off", ['[providers.vastai]\nenabled = false\napi_key = "abc"\n'])
def test_a_provider_that_is_switched_off_is_off_with_a_key_too(loaded: Any, off: str) -> None:
    assert loaded(off, env={"VAST_API_KEY": "abc"}).providers == {}


def test_a_key_for_a_provider_that_is_not_there_yet_is_ignored(loaded: Any) -> None:
    assert list(loaded("", env={"NOSUCHCLOUD_API_KEY": "x"}).providers) == ["vastai"]


@pytest.mark.parametrize(
    ("env", "url"),
    [
        ({"STATE_DIRECTORY": "/var/lib/gw:/other"}, "sqlite:////var/lib/gw/gpuwatch.db"),
        ({"XDG_STATE_HOME": "/state"}, "sqlite:////state/gpuwatch/gpuwatch.db"),
        ({"HOME": "/nohome"}, "sqlite:////nohome/.local/state/gpuwatch/gpuwatch.db"),
    ],
)
def test_the_history_is_in_the_state_folder_by_default(loaded: Any, env: dict[str, str], url: str) -> None:
    assert loaded("", env=env).database_url == url


def test_a_relative_database_is_relative_to_the_current_folder(loaded: Any, home: Path) -> None:
    assert loaded('database_url = "sqlite:///x.db?mode=ro"').database_url == f"sqlite:///{home}/x.db?mode=ro"


@pytest.mark.parametrize(("security", "port"), [("starttls", 587), ("tls", 465), ("none", 25)])
def test_the_mail_port_follows_the_kind_of_security(loaded: Any, security: str, port: int) -> None:
    toml = f'[notify.email]\nhost = "h"\nsecurity = "{security}"\nsender = "a@b"\nrecipients = ["c@d"]\n'
    channel = loaded(toml).channels["email"]
    with closing(PooledHttpClient()) as http:
        assert notifiers.build(channel.revealed(), http)._settings.port == port


def test_a_telegram_chat_may_be_a_number(loaded: Any) -> None:
    assert (
        loaded('[notify.telegram]\nbot_token = "1:x"\nchat_id = -100123\n').channels["telegram"].options["chat_id"]
        == "-100123"
    )


def test_an_empty_channel_table_is_no_channel(loaded: Any) -> None:
    assert loaded("[notify.telegram]\n[notify.email]\n").channels == {}


@pytest.mark.parametrize(("written", "seconds"), [("0s", 0.0), ("0.25s", 0.25), ("6s", 6.0)])
def test_the_search_interval_may_be_a_fraction_of_a_second_or_nothing(
    loaded: Any, written: str, seconds: float
) -> None:
    settings = loaded(f'[providers.vastai]\nsearch_interval = "{written}"\n')
    assert settings.providers["vastai"].search_interval_s == seconds


def test_a_spelling_seen_at_a_provider_may_be_watched(loaded: Any) -> None:
    toml = WATCH.replace("H100", "weird gpu 9")
    with pytest.raises(SettingsError):
        loaded(toml)
    assert loaded(toml, known_spellings=["Weird GPU 9"]).watches[0].gpu_names == ("Weird GPU 9",)


CONTRACT = """
timezone = "Europe/Berlin"
database_url = "sqlite:///gpuwatch.db"
dry_run = true

[budget]
max_usd_hour  = 20.0
max_usd_day   = 100.0
max_usd_month = 1000.0
max_instances = 4

[providers.vastai]
enabled    = true
api_key    = "abc"
base_url   = "https://console.vast.ai"
commission = 0.20
poll_every = "30s"
sweep_every = "auto"
search_interval = "6s"
rows_per_day = 20000

[record]
gpu = ["H100", "A100", "RTX 4090"]

[notify.telegram]
bot_token = "1:abc"
chat_id = 5

[notify.email]
host = "h"
sender = "a@b"
recipients = ["c@d"]

[notify.apprise]
urls = ["ntfy://x"]

[[watch]]
name       = "h100-night"
gpu        = ["H100"]
gpu_count  = 1
max_price  = 3.50
action     = "launch"
providers  = ["vastai"]
spot       = "no"
min_vram_gib = 79
disk_gb    = 100
hold_for   = "0s"
active     = ["22:00-08:00", "Sat-Sun"]
repeat_every = "6h"
notify     = ["telegram", "email"]

[watch.launch]
image      = "pytorch/pytorch:2.5.1-cuda12.4-cudnn9-runtime"
onstart    = "bash /workspace/train.sh"
env        = { WANDB_MODE = "offline" }
max_active = 1
max_total  = 1
max_runtime = "24h"
ready_within = "15m"
idle_below = 10
idle_for   = "20m"
"""


def test_a_file_with_every_key_of_the_contract_loads(loaded: Any) -> None:
    settings = loaded(CONTRACT)
    assert settings.record.gpu_names[:2] == ("H100 SXM", "H100 PCIe")
    assert settings.channels["email"].options["security"] == "starttls"
    assert settings.watches[0].launch.idle_for_s == 1200


def test_a_commission_of_nothing_is_a_commission(loaded: Any) -> None:
    assert loaded(CONTRACT.replace("0.20", "0")).providers["vastai"].commission.rate == 0


def test_what_kubernetes_says_of_a_service_called_gpuwatch_is_no_setting(loaded: Any) -> None:
    env = {
        "GPUWATCH_SERVICE_HOST": "10.0.0.1",
        "GPUWATCH_SERVICE_PORT_HTTP": "80",
        "GPUWATCH_PORT": "tcp://10.0.0.1:80",
    }
    assert loaded("", env={**env, "GPUWATCH_PORT_80_TCP_ADDR": "10.0.0.1"}).watches == ()
