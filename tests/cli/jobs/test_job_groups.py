"""`group = "NAME"` in a job's file: what it inherits, and what is done to the group."""

from __future__ import annotations

import pytest

from gpuwatch.bootstrap.settings_loading import load_settings
from gpuwatch.cli import Exit
from gpuwatch.settings.validate import read_job_file
from tests.cli.conftest import Shell

SETTINGS = """
database_url = "sqlite:///{folder}/gpuwatch.db"
[defaults.watch]
min_reliability = 0.95
regions = ["EU"]
[group.night]
active = ["22:00-08:00"]
regions = ["...", "US"]
spot = "only"
max_price = 9
[group.empty]
[[watch]]
name = "h100-night"
group = "night"
gpu = "H100"
max_price = 2.20
"""
JOB = 'command = "python train.py"\nresources = { gpu = "H100"%s }\nlimit = { max_usd = 10 }\n%s'
OF_NIGHT = 'group = "night"\n'


@pytest.fixture(autouse=True)
def _settings(shell: Shell) -> None:
    shell.settings(SETTINGS.format(folder=shell.folder))
    shell.new_store()
    recurring = OF_NIGHT + 'schedule = "@daily"\nwithin = "6h"\n'
    for name, more in (("train", OF_NIGHT), ("weekly", recurring), ("plain", "")):
        (shell.folder / f"{name}.toml").write_text(JOB % ("", more))


def test_a_job_inherits_what_its_group_says_about_offers_and_when_it_may_start(shell: Shell) -> None:
    settings = load_settings(str(shell.folder / "gpuwatch.toml"))
    own = ', spot = "no", regions = ["...", "AS"]'
    (shell.folder / "own.toml").write_text(JOB % (own, OF_NIGHT + 'active = ["Sat-Sun"]\n'))
    train, overriding, plain = (
        read_job_file(shell.folder / f"{name}.toml", settings.groups) for name in ("train", "own", "plain")
    )
    assert (train.resources.min_reliability, train.resources.regions, train.active) == (
        0.95, ("EU", "US"), ("22:00-08:00",),
    )  # fmt: skip
    assert (train.resources.spot.value, train.resources.group, train.group) == ("only", "night", None)
    assert (overriding.resources.spot.value, overriding.active) == ("no", ("Sat-Sun",))
    assert overriding.resources.regions == ("EU", "US", "AS")
    assert (plain.resources.min_reliability, plain.active) == (None, ()), "without a group a file is complete by itself"


def test_an_unknown_group_is_one_line(shell: Shell) -> None:
    (shell.folder / "train.toml").write_text(JOB % ("", 'group = "nigth"\n'))
    ran = shell("jobs", "submit", "train.toml")
    assert (ran.code, ran.err.count("\n")) == (Exit.USAGE, 1)
    assert "train.toml:4: group: there is no group 'nigth'; did you mean night?" in ran.err


def test_a_group_is_listed_and_paused_with_its_jobs(shell: Shell) -> None:
    assert shell("jobs", "submit", "train.toml", "weekly.toml", "plain.toml").code == Exit.DONE
    assert [one["name"] for one in shell("jobs", "list", "--group", "night", "--json").json] == ["train"]
    shown = shell("jobs", "list", "--group", "night").out
    assert ("weekly" in shown, "plain" in shown) == (True, False)
    assert shell("jobs", "list", "--group", "nights").code == Exit.USAGE
    assert shell("jobs", "show", "train", "--json").json["definition"]["group"] == "night"
    assert shell("status", "--group", "night").code == Exit.DONE
    paused = shell("watches", "pause", "--group", "night", "--for", "8h", "--json").json
    assert {one["watch"] for one in paused} == {"h100-night", "job:train", "job:weekly"}
    assert shell("watches", "resume", "--group", "night", "--json").json == []
    assert "no watch has group" in shell("watches", "pause", "--group", "empty").err


def test_a_group_of_jobs_alone_can_be_paused(shell: Shell) -> None:
    (shell.folder / "train.toml").write_text(JOB % ("", 'group = "empty"\n'))
    shell("jobs", "submit", "train.toml")
    assert [one["watch"] for one in shell("watches", "pause", "--group", "empty", "--json").json] == ["job:train"]
