"""`[notify]`: quiet hours, and each channel's `min_severity`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.bootstrap.rules import build_routing
from gpuwatch.errors import SettingsError
from gpuwatch.ports import Severity
from gpuwatch.settings import Settings, load
from tests.engine.scripted_channels import Scripted

TELEGRAM = '[notify.telegram]\nbot_token = "123456:abcdefghijklmnopqrstuvwxyz"\nchat_id = "1"\n'


def loaded(folder: Path, text: str, **env: str) -> Settings:
    path = folder / "gpuwatch.toml"
    path.write_text(text)
    return load(str(path), env=env, cwd=folder)


def test_without_them_every_alert_is_sent_at_once(tmp_path: Path) -> None:
    found = loaded(tmp_path, TELEGRAM)
    assert found.quiet_hours == ()
    assert found.channels["telegram"].min_severity is Severity.INFO
    assert "min_severity" not in found.channels["telegram"].options


def test_quiet_hours_and_min_severity_reach_the_routing(tmp_path: Path) -> None:
    text = f'[notify]\nquiet_hours = ["22:00-08:00", "Sat,Sun"]\n{TELEGRAM}min_severity = "warning"\n'
    routing = build_routing(loaded(tmp_path, text), {"telegram": Scripted("telegram")})
    assert routing.quiet_hours == ("22:00-08:00", "Sat,Sun")
    assert routing.min_severity == {"telegram": Severity.WARNING}


@pytest.mark.parametrize("given", ["22:00-08:00", '["22:00-08:00"]'])
def test_the_environment_may_hold_them(tmp_path: Path, given: str) -> None:
    found = loaded(tmp_path, TELEGRAM, GPUWATCH_NOTIFY__QUIET_HOURS=given)
    assert found.quiet_hours == ("22:00-08:00",)
    env = {"GPUWATCH_NOTIFY__TELEGRAM__MIN_SEVERITY": "critical"}
    assert loaded(tmp_path, TELEGRAM, **env).channels["telegram"].min_severity is Severity.CRITICAL


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('[notify]\nquiet_hours = ["at night"]\n', "notify.quiet_hours"),
        ("[notify]\nquiet_hours = 8\n", "notify.quiet_hours"),
        ("[notify]\nquiet_hour = []\n", "notify.quiet_hour"),
        (f'{TELEGRAM}min_severity = "urgent"\n', "notify.telegram.min_severity"),
    ],
)
def test_a_wrong_value_names_its_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(SettingsError) as fault:
        loaded(tmp_path, text)
    (line,) = fault.value.faults
    assert key in line


def test_quiet_hours_alone_are_no_channel(tmp_path: Path) -> None:
    assert loaded(tmp_path, '[notify]\nquiet_hours = ["22:00-08:00"]\n').channels == {}
