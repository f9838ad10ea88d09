"""`gpuwatch watches checklist`: see, tick, untick."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Shell

SETTINGS = """
timezone = "Europe/Berlin"
[[watch]]
name = "train it"
gpu = ["H100"]
max_price = 3.5
action = "launch"
require = ["dry_epoch", "amp", "mine: a word", "amp"]
[watch.launch]
max_runtime = "24h"
[[watch]]
name = "look"
gpu = ["A100"]
max_price = 1.5
"""


@pytest.fixture(autouse=True)
def _settings(shell: Shell) -> None:
    shell.settings(SETTINGS)
    shell.new_store()


def test_the_list_says_what_is_missing_and_what_it_means(shell: Shell) -> None:
    ran = shell("checklist")
    assert (ran.code, ran.err) == (0, "")
    assert "train it: 0 of 3 done; it does not rent until the rest is ticked" in ran.out
    assert "[ ] dry_epoch\n      One epoch ran on 1 %" in ran.out
    assert "look" not in ran.out


def test_a_tick_is_kept_with_its_words_and_an_untick_takes_it_back(shell: Shell) -> None:
    ticked = shell("checklist", "tick", "train it", "mine: a word", "amp", "--note", "wandb run 7")
    assert "[x] amp" in ticked.out
    assert ": wandb run 7" in shell("checklist", "train it").out
    found = shell("checklist", "train it", "--json").json
    assert [(one["item"], one["ticked"], one["note"]) for one in found[0]["items"]] == [
        ("dry_epoch", False, None),
        ("amp", True, "wandb run 7"),
        ("mine: a word", True, "wandb run 7"),
    ]
    assert (found[0]["ready"], found[0]["missing"]) == (False, ["dry_epoch"])
    shell("checklist", "tick", "train it", "dry_epoch")
    assert shell("checklist", "--json", "show", "train it").json[0]["ready"] is True
    assert shell("checklist", "untick", "train it", "--all", "--json").json[0]["missing"] == [
        "dry_epoch",
        "amp",
        "mine: a word",
    ]


def test_what_left_the_settings_stays_to_be_seen_and_can_be_unticked(shell: Shell) -> None:
    shell("checklist", "tick", "train it", "amp")
    shell.settings(SETTINGS.replace('"amp", ', "").replace(', "amp"', ""))
    assert "[x] amp (no longer required)" in shell("checklist").out
    assert "amp" not in shell("checklist", "untick", "train it", "amp").out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["tick", "train it", "ampp"], "does not require 'ampp'; did you mean 'amp'?"),
        (["tick", "train it", "amp", "zzz"], "does not require 'zzz'; it requires dry_epoch, amp"),
        (["tick", "look", "amp"], "requires nothing"),
        (["tick", "nobody", "amp"], "there is no watch 'nobody'; watches: train it, look"),
        (["nobody"], "there is no watch 'nobody'"),
        (["untick", "train it"], "name the items, or use --all"),
        (["untick", "train it", "amp", "--all"], "name the items, or use --all"),
        (["tick", "train it"], "Missing argument"),
    ],
)
def test_a_slip_changes_nothing(shell: Shell, argv: list[str], said: str) -> None:
    ran = shell("checklist", *argv)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert not any(one["ticked"] for one in shell("checklist", "--json").json[0]["items"])


def test_without_any_list_the_known_items_are_shown(shell: Shell) -> None:
    shell.settings("")
    ran = shell("checklist")
    assert ran.code == 0
    for item in ("dry_epoch", "loss_falls", "util_70", "amp", "lora"):
        assert f"  {item}\n" in ran.out
    assert shell("checklist", "--json").json == []


def test_doctor_says_which_watch_is_held_back(shell: Shell) -> None:
    def reported() -> list[str]:
        return [one["text"] for one in shell("doctor", "--json").json if one["area"] == "renting"]

    (line,) = reported()
    assert line == (
        "Watch 'train it' does not rent: the checklist is not complete: dry_epoch, amp, mine: a word; "
        "see: gpuwatch watches checklist 'train it'"
    )
    shell("checklist", "tick", "train it", "dry_epoch", "amp", "mine: a word")
    assert reported() == []


def test_an_item_too_long_to_be_kept_is_a_fault_of_the_settings(shell: Shell) -> None:
    shell.settings(SETTINGS.replace("mine: a word", "x" * 201))
    ran = shell("checklist")
    assert ran.code == 2
    assert "require" in ran.err


JOB = """
command = "x"
resources = { gpu = "H100" }
limit = { max_usd = 10 }
require = ["amp", "util_70"]
"""


def test_a_job_has_a_checklist_and_its_pilot_does_its_part(shell: Shell) -> None:
    """`gpuwatch watches checklist tick job:NAME` was documented, but rejected: it knew only watches."""
    (shell.folder / "big.toml").write_text(JOB + 'pilot = "1%"\n')
    (shell.folder / "plain.toml").write_text(JOB)
    shell("job", "submit", "big.toml", "plain.toml")
    assert "job:big: 0 of 2 done; it does not rent" in shell("checklist").out
    assert "[ ] util_70 (measured by the pilot)" in shell("checklist", "job:big").out
    ticked = shell("checklist", "tick", "job:big", "amp", "--json").json[0]
    assert (ticked["missing"], ticked["ready"]) == (["util_70"], True)
    assert "it rents, and its pilot measures the rest" in shell("checklist", "job:big").out
    assert shell("checklist", "tick", "job:plain", "amp", "--json").json[0]["ready"] is False
    assert "does not require 'lora'" in shell("checklist", "tick", "job:big", "lora").err
    assert "there is no job 'none'" in shell("checklist", "tick", "job:none", "amp").err
    said = shell("doctor").out
    assert "'plain' rents nothing: the checklist is not complete: util_70" in " ".join(said.split())
    assert "'big' rents nothing" not in said
