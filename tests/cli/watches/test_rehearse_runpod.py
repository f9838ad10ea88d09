"""Missing prerequisites of a RunPod account are found before the first rent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuwatch.cli import Exit
from tests.cli.conftest import Shell
from tests.clouds.runpod import RunPod

SETTINGS = """
dry_run = false
database_url = "sqlite:///{folder}/gpuwatch.db"
[budget]
max_usd_hour = 50
[providers.vastai]
enabled = false
[providers.runpod]
base_url = "{url}"
api_key = "demo-key"
{options}
[[watch]]
name = "h100"
gpu = ["H100"]
max_price = 10.0
action = "launch"
providers = ["runpod"]
[watch.launch]
max_runtime = "2h"
"""


@pytest.fixture
def cloud(shell: Shell) -> Iterator[RunPod]:
    with RunPod() as place:
        write(shell, place)
        yield place


def write(shell: Shell, place: RunPod, options: str = "") -> None:
    shell.settings(SETTINGS.format(folder=shell.folder, url=place.url, options=options))


def test_an_account_with_everything_is_ready_and_nothing_is_made(shell: Shell, cloud: RunPod) -> None:
    cloud.registries = {"cred1": "mine"}
    write(shell, cloud, 'options.registry_id = "cred1"')
    ran = shell("rehearse", "h100")
    assert ran.code == Exit.DONE, ran.out
    assert all(f"ok      runpod {name}" in ran.out for name in ("credentials", "balance", "key-pair", "image"))
    assert cloud.pods == {}


LACKS: list[tuple[Callable[[RunPod], Any], str, str, str]] = [
    (lambda one: setattr(one, "key", "another"), "", "credentials", "renew the key"),
    (lambda one: setattr(one, "credit", 0.0), "", "balance", "add credit"),
    (lambda one: setattr(one, "ssh_key", ""), "", "key-pair", "PUBLIC_KEY"),
    (lambda one: None, 'options.registry_id = "cred9"', "image", "options.registry_id"),
]


@pytest.mark.parametrize(("lack", "options", "name", "mend"), LACKS)
def test_each_missing_prerequisite_is_a_line_with_its_mend(
    shell: Shell, cloud: RunPod, lack: Callable[[RunPod], Any], options: str, name: str, mend: str
) -> None:
    lack(cloud)
    write(shell, cloud, options)
    ran = shell("rehearse", "h100", "--json")
    assert ran.code == Exit.FAILED
    (line,) = [one for one in ran.json["lines"] if one["state"] == "missing"]
    assert (line["name"], mend in line["mend"]) == (name, True)
    doctor = shell("doctor", "--provider", "runpod", "--json")
    assert doctor.code == Exit.FAILED
    assert any(one["state"] == "fault" and one["text"].startswith(f"{name}:") for one in doctor.json)
    assert cloud.pods == {}


@pytest.mark.parametrize("launch", ['onstart = "python x.py"', 'env = { PUBLIC_KEY = "ssh-ed25519 AAAA me" }'])
def test_no_key_is_needed_where_the_work_starts_itself_or_brings_one(shell: Shell, cloud: RunPod, launch: str) -> None:
    cloud.ssh_key = ""
    text = (shell.folder / "gpuwatch.toml").read_text()
    shell.settings(f"{text}{launch}\n")
    assert shell("rehearse", "h100").code == Exit.DONE


@pytest.mark.parametrize(("onstart", "state"), [("", "MISSING"), ('onstart = "true"', "note   ")])
def test_self_destruct_says_how_and_what_it_needs(shell: Shell, cloud: RunPod, onstart: str, state: str) -> None:
    settings = SETTINGS.format(folder=shell.folder, url=cloud.url, options="")
    shell.settings(f"{settings}self_destruct = true\n{onstart}\n")
    ran = shell("rehearse", "h100")
    [line] = [one for one in ran.out.splitlines() if "self-destruct" in one]
    assert line.startswith(f"{state} runpod self-destruct: ")
    assert ("billing stops" in line) is bool(onstart)
