"""`gpuwatch watches handover`: its output, validated by the schemas of SkyPilot and dstack; nothing is rented."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from gpuwatch.cli import Exit
from tests.checkout import ROOT, TESTS
from tests.cli.conftest import Shell
from tests.clouds.shadeform import Shadeform
from tests.clouds.verda import CLIENT_ID, Verda

RECORDED = TESTS / "recorded" / "orchestrators"
SKYPILOT: Any = json.loads((RECORDED / "skypilot-0.14.1.json").read_bytes())
DSTACK: Any = json.loads((RECORDED / "dstack-task-0.22.5.json").read_bytes())
SETTINGS = """
[providers.vastai]
enabled = false
[providers.verda]
base_url = "{url}"
api_key = "demo-key"
options.client_id = "{client}"
[[watch]]
name = "H100 night"
gpu = ["H100"]
max_price = {max_price}
disk_gb = 120
spot = "{spot}"
"""


@pytest.fixture
def place() -> Iterator[Verda]:
    with Verda() as place:
        yield place


def write(shell: Shell, place: Verda, max_price: str = "2.5", spot: str = "no") -> None:
    shell.settings(SETTINGS.format(url=place.url, client=CLIENT_ID, max_price=max_price, spot=spot))


def check_skypilot(task: Any) -> None:
    jsonschema.validate(task, SKYPILOT["task"])
    jsonschema.validate(task["resources"], SKYPILOT["resources"])


def test_skypilot_accepts_what_is_printed(shell: Shell, place: Verda) -> None:
    write(shell, place)
    ran = shell("handover", "H100 night", "--to", "skypilot", "--run", "python train.py --say 'a: \"b\"'")
    assert ran.code == Exit.DONE, ran.err
    task = yaml.safe_load(ran.out)
    check_skypilot(task)
    assert task["resources"] == {
        "infra": "verda/FIN-02", "accelerators": "H100:1", "use_spot": False, "max_hourly_cost": 2.5, "disk_size": 120,
    }  # fmt: skip
    assert (task["name"], task["run"]) == ("gpuwatch-h100-night", "python train.py --say 'a: \"b\"'")
    assert place.machines == {}


def test_dstack_accepts_what_is_printed(shell: Shell, place: Verda) -> None:
    write(shell, place, spot="only")
    ran = shell("handover", "H100 night", "--to", "dstack", "--run", "python train.py")
    assert ran.code == Exit.DONE, ran.err
    task = yaml.safe_load(ran.out)
    jsonschema.validate(task, DSTACK)
    assert (task["backends"], task["regions"], task["instance_types"]) == (["verda"], ["FIN-02"], ["1H100.80S.30V"])
    assert task["resources"]["gpu"] == {"name": ["H100"], "count": 1, "memory": "72GB.."}
    assert (task["spot_policy"], task["max_price"]) == ("spot", 2.5)
    assert place.machines == {}


def test_the_cap_is_the_limit_of_the_watch_for_the_whole_machine(shell: Shell, place: Verda) -> None:
    place.sell_out("1H100.80S.30V/FIN-02")
    shell.settings(SETTINGS.format(url=place.url, client=CLIENT_ID, max_price="2.4567", spot="no") + "gpu_count = 8\n")
    ran = shell("handover", "H100 night", "--to", "skypilot", "--json")
    assert ran.code == Exit.DONE, ran.err
    assert ran.json["task"]["resources"]["max_hourly_cost"] == pytest.approx(2.4567 * 8, abs=1e-4)
    assert ran.json["task"]["resources"]["max_hourly_cost"] <= 2.4567 * 8


def test_nothing_under_the_limit_is_nothing_printed(shell: Shell, place: Verda) -> None:
    write(shell, place, max_price="0.5")
    ran = shell("handover", "H100 night", "--to", "dstack")
    assert (ran.code, ran.out) == (Exit.FAILED, "")


def test_without_an_answer_it_cannot_tell(shell: Shell, place: Verda) -> None:
    write(shell, place)
    place.fail("GET ", 500, times=20)
    ran = shell("handover", "H100 night", "--to", "dstack")
    assert (ran.code, ran.out) == (Exit.CANNOT_TELL, "")


def test_an_unknown_watch_is_said(shell: Shell, place: Verda) -> None:
    write(shell, place)
    assert shell("handover", "h200", "--to", "dstack").code == Exit.USAGE


def test_an_offer_at_a_provider_that_the_tool_lacks_is_said(shell: Shell) -> None:
    with Shadeform() as other:
        text = SETTINGS.replace("verda", "shadeform").replace("options.client_id", "# {client}")
        shell.settings(text.format(url=other.url, client="", max_price="5", spot="no").replace("disk_gb = 120", ""))
        ran = shell("handover", "H100 night", "--to", "dstack")
        assert (ran.code, ran.out) == (Exit.FAILED, "")
        assert "shadeform has a matching offer, but dstack does not support that provider" in ran.err
        check_skypilot(yaml.safe_load(shell("handover", "H100 night", "--to", "skypilot").out))


DOC = (ROOT / "docs" / "orchestrators.md").read_text()
READY = re.findall(r"^command = \[.*?\]\n(?:command_timeout.*\n)?handover = .*$", DOC, re.MULTILINE)


@pytest.mark.parametrize("ready", READY, ids=("skypilot", "dstack"))
def test_the_ready_commands_of_the_page_are_shown_with_their_words(shell: Shell, place: Verda, ready: str) -> None:
    write(shell, place)
    file = Path("gpuwatch.toml")
    file.write_text(f'{file.read_text()}action = "command"\n{ready}\n')
    ran = shell("check", "--json", "--no-store")
    assert ran.code == Exit.DONE, ran.err
    (watch,) = json.loads(ran.out)["watches"]
    wanted = tomllib.loads(ready)["command"]
    names = {"{name}": "gpuwatch-h100-night", "{task_file}": "TASK_FILE"}
    assert watch["command"] == [names.get(word, word) for word in wanted]
    assert "would run: " in shell("check", "--no-store").out


def test_doctor_says_whether_the_program_of_a_command_is_there(shell: Shell, place: Verda) -> None:
    write(shell, place)
    file = Path("gpuwatch.toml")
    plain = file.read_text()
    file.write_text(f'{plain}action = "command"\ncommand = ["sh"]\n')
    assert "watch H100 night: /" in shell("doctor").out
    file.write_text(f'{plain}action = "command"\ncommand = ["no-such-program-4711"]\n')
    ran = shell("doctor")
    assert ran.code != Exit.DONE
    assert "no executable program 'no-such-program-4711'" in ran.out


def test_what_the_daemon_would_not_rent_is_not_handed_over(shell: Shell, place: Verda) -> None:
    """Without past prices no offer is a fifth below their median."""
    write(shell, place)
    settings = shell.folder / "gpuwatch.toml"
    settings.write_text(settings.read_text() + 'drop_by = "20%"\n')
    ran = shell("handover", "H100 night", "--to", "skypilot")
    assert ran.code == Exit.FAILED, ran.out


def test_what_is_handed_over_is_what_the_watch_prefers(shell: Shell, place: Verda) -> None:
    """Eight GPUs cost less per GPU, one costs less in total."""
    write(shell, place, max_price="5")
    settings = shell.folder / "gpuwatch.toml"
    plain = settings.read_text() + "gpu_count = { min = 1, max = 8 }\n"
    plain += 'tie = "0%"\naction = "command"\ncommand = ["echo", "{gpu_count}"]\n'
    for prefer, count in (("cheapest-gpu", 8), ("cheapest-total", 1)):
        settings.write_text(f'{plain}prefer = "{prefer}"\n')
        handed_over = json.loads(shell("handover", "H100 night", "--to", "skypilot", "--json").out)
        (watch,) = json.loads(shell("check", "--json", "--no-store").out)["watches"]
        assert (handed_over["offer"]["gpu_count"], watch["command"]) == (count, ["echo", str(count)])
