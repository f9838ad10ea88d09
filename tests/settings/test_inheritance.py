"""`[defaults.watch]` and `[group.NAME]`: what a watch inherits, what is wrong there, where each value comes from."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest

from gpuwatch.cli import Exit, run
from gpuwatch.errors import SettingsError
from gpuwatch.settings import Settings, from_flags, load, load_for_stopping

FILE = """\
timezone = "UTC"
[defaults.watch]
gpu = "H100"
regions = ["EU"]
min_reliability = 0.9
[defaults.watch.launch]
image = "ours/train"
env = { A = "1", B = "2" }
[group.night]
max_price = 3.5
active = ["22:00-08:00"]
regions = ["...", "NO"]
launch.max_runtime = "24h"
launch.env = { B = "3" }
[group.day]
[[watch]]
name = "a"
group = "night"
[[watch]]
name = "b"
max_price = 2.0
gpu = ["...", "A100"]
launch.env.A = "9"
"""
SHOWN = """\
watch "a".name = "a"  # watch "a" line 17
watch "a".group = "night"  # watch "a" line 18
watch "a".gpu = "H100"  # defaults line 3
watch "a".max_price = 3.5  # group night line 10
watch "a".min_reliability = 0.9  # defaults line 5
watch "a".regions = ["EU", "NO"]  # group night line 12
watch "a".min_cuda = 12.4  # env GPUWATCH_GROUP__NIGHT__MIN_CUDA
watch "a".active = ["22:00-08:00"]  # group night line 11
watch "a".launch.image = "ours/train"  # defaults line 7
watch "a".launch.env = {"A": "********", "B": "********"}  # group night line 14
watch "a".launch.max_runtime = "24h"  # group night line 13
watch "b".name = "b"  # watch "b" line 20
watch "b".gpu = ["H100", "A100"]  # watch "b" line 22
watch "b".max_price = 2.0  # watch "b" line 21
watch "b".min_reliability = 0.9  # defaults line 5
watch "b".regions = ["EU"]  # defaults line 4
watch "b".launch.image = "ours/train"  # defaults line 7
watch "b".launch.env = {"A": "********", "B": "********"}  # watch "b" line 23
"""
Load = Callable[..., Settings]


@pytest.fixture
def loaded(home: Path) -> Load:
    def read(toml: str, **env: str) -> Settings:
        (home / "gpuwatch.toml").write_text(toml)
        return load(env=env, cwd=home)

    return read


def faults(loaded: Load, toml: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        loaded(toml)
    return [line.partition("gpuwatch.toml:")[2] for line in caught.value.faults]


def test_a_group_overrides_the_defaults_and_a_watch_both(loaded: Load) -> None:
    settings = loaded(FILE)
    a, b = settings.watches
    assert tuple(settings.groups) == ("night", "day")
    assert (a.group, b.group) == ("night", None)
    assert (a.gpu, b.gpu) == (("H100",), ("H100", "A100"))
    assert (a.regions, b.regions) == (("EU", "NO"), ("EU",))
    assert (a.max_price_usd_gpu_hour, b.max_price_usd_gpu_hour) == (Decimal("3.5"), Decimal("2.0"))
    assert (a.active, b.active) == (("22:00-08:00",), ())
    assert a.launch is not None
    assert b.launch is not None
    assert (a.launch.image, a.launch.max_runtime_s, a.launch.env) == ("ours/train", 86_400, {"A": "1", "B": "3"})
    assert (b.launch.image, b.launch.max_runtime_s, b.launch.env) == ("ours/train", None, {"A": "9", "B": "2"})


def test_the_environment_sets_them_too(loaded: Load) -> None:
    settings = loaded(FILE, GPUWATCH_DEFAULTS__WATCH__REGIONS='["US"]', GPUWATCH_GROUP__NIGHT__MAX_PRICE="1.25")
    assert [watch.regions for watch in settings.watches] == [("US", "NO"), ("US",)]
    assert settings.watches[0].max_price_usd_gpu_hour == Decimal("1.25")


@pytest.mark.parametrize(
    ("inherited", "own", "limit"),
    [
        ('max_price = "auto"\nmax_price_cap = 4\ndeadline = "2d"\n', "max_price = 2\n", "2"),
        ("max_job_cost = 100\n[defaults.watch.job]\nhours = 2\n", "max_price = 2\n", "2"),
        ("max_price = 2\n", "max_job_cost = 6\njob.hours = 2\n", None),
    ],
)
def test_another_kind_of_limit_replaces_the_inherited_one(
    loaded: Load, inherited: str, own: str, limit: str | None
) -> None:
    (watch,) = loaded(f'[defaults.watch]\n{inherited}[[watch]]\nname = "a"\ngpu = "H100"\n{own}').watches
    assert watch.auto is None
    assert (watch.max_job_cost_usd is None) is (limit is not None)
    assert limit is None or watch.max_price_usd_gpu_hour == Decimal(limit)


def test_an_own_script_replaces_the_inherited_file(loaded: Load, home: Path) -> None:
    (home / "run.sh").write_text("python train.py\n")
    toml = '[defaults.watch]\ngpu = "H100"\nmax_price = 2\nlaunch.onstart_file = "run.sh"\n'
    settings = loaded(toml + '[[watch]]\nname = "a"\n[[watch]]\nname = "b"\nlaunch.onstart = "true"\n')
    assert [watch.launch.onstart for watch in settings.watches if watch.launch] == ["python train.py", "true"]


def test_a_watch_of_the_command_line_inherits_nothing(home: Path) -> None:
    (home / "gpuwatch.toml").write_text(FILE)
    (watch,) = from_flags(["H100"], "3", config=str(home / "gpuwatch.toml"), env={}).watches
    assert (watch.regions, watch.min_reliability, watch.launch) == ((), None, None)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (
            ("min_reliability = 0.9", "min_reliability = 9"),
            '5: defaults.watch.min_reliability: expected a number of at most 1 (watches "a", "b")',
        ),
        (("max_price = 3.5", 'max_price = "cheap"'), '10: group.night.max_price: expected a number (watch "a")'),
        (("active =", "activ ="), '11: group.night.activ: unknown key; did you mean active? (watch "a")'),
        (
            ('gpu = "H100"', 'gpu = "H1000"'),
            "3: defaults.watch.gpu: unknown GPU 'H1000'; did you mean H100 or H100 SXM or H100 PCIe? (watch \"a\")",
        ),
        (("[group.day]", "[group.day]\nspot = 1"), "16: group.day.spot: expected 'no', 'only', 'any' or 'first'"),
        (("[group.day]", '[group.day]\nname = "x"'), "16: group.day.name: unknown key here; name belongs in [[watch]]"),
        (
            ("[group.day]", '[group.day]\ngroup = "night"'),
            "16: group.day.group: unknown key here; group belongs in [[watch]]",
        ),
        (
            ('group = "night"', 'group = "nigth"'),
            "18: watch \"a\": group: there is no group 'nigth'; did you mean night? groups: night, day",
        ),
        (
            ("launch.max_runtime", "launch.idle_below = 5\nlaunch.max_runtime"),
            "",
        ),
    ],
)
def test_a_fault_is_named_once_where_it_is_with_the_watches_concerned(
    loaded: Load, wrong: tuple[str, str], line: str
) -> None:
    found = faults(loaded, FILE.replace(*wrong))
    assert len(found) == 1
    assert not line or found == [line]
    assert "watch" in found[0] or "day" in found[0]


def test_many_watches_are_counted(loaded: Load) -> None:
    watches = "".join(f'[[watch]]\nname = "w{number}"\nmax_price = 1\n' for number in range(6))
    (fault,) = faults(loaded, f"[defaults.watch]\ngpu = 5\n{watches}")
    assert fault.endswith('(watches "w0", "w1", "w2" and 3 more)')


def test_without_groups_the_fault_says_which_lines_to_add(loaded: Load) -> None:
    (fault,) = faults(loaded, '[[watch]]\nname = "a"\ngpu = "H100"\nmax_price = 1\ngroup = "night"\n')
    assert fault == "5: watch \"a\": group: there is no group 'night'; groups: none; add [group.night]"


def test_for_stopping_a_wrong_default_is_ignored_and_a_watch_left_out_keeps_its_group(home: Path) -> None:
    toml = FILE.replace("max_price = 3.5", 'max_price = "cheap"').replace(
        "min_reliability = 0.9", "min_reliability = 9"
    )
    (home / "gpuwatch.toml").write_text(toml)
    found = load_for_stopping(env={}, cwd=home)
    assert [(watch.name, watch.min_reliability) for watch in found.settings.watches] == [("b", None)]
    assert found.settings.left_out == {"a": "night"}


def test_config_show_tells_where_each_value_comes_from(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "gpuwatch.toml").write_text(FILE)
    monkeypatch.chdir(home)
    monkeypatch.setenv("GPUWATCH_GROUP__NIGHT__MIN_CUDA", "12.4")
    assert run(["config", "show", "--json"]) == Exit.DONE
    rows = json.loads(capsys.readouterr().out)["settings"]
    found = "".join(
        f"{row['key']} = {json.dumps(row['value'])}  # {row['source']}\n"
        for row in rows
        if row["key"].startswith("watch ") and row["source"] != "built in"
    )
    assert found == SHOWN
    sources = {row["source"] for row in rows if row["origin"] == "default"}
    assert sources == {"built in"}
