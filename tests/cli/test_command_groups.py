"""Groups of commands: bare ones list, former names answer as the commands they now stand for."""

from __future__ import annotations

import json
import re
import shlex

import click
import pytest

from gpuwatch.cli import Exit, main
from gpuwatch.cli.base import Group, GroupEntry
from gpuwatch.cli.commands import ALIASES, SHORT_NAMES
from gpuwatch.domain.launches.launch import LaunchState
from tests.cli.conftest import Shell
from tests.cli.launches.test_launches import ID, Rows

BARE = ("watches", "launches", "approvals", "jobs", "alerts", "providers", "hosts")


@pytest.fixture
def stored(shell: Shell) -> Shell:
    """A store with one launch, a watch, and no key: nothing asks a provider."""
    url = f"sqlite:///{shell.folder}/gpuwatch.db"
    watch = '[[watch]]\nname = "h100-night"\ngpu = ["H100"]\nmax_price = 3.5\nrequire = ["dry_epoch"]\n'
    shell.settings(f'database_url = "{url}"\n{watch}')
    rows = Rows(shell.folder)
    rows.move(rows.reserve(), LaunchState.FAILED, end_reason="no_instance")
    rows.store.close()
    return shell


def test_a_former_or_short_name_is_hidden_and_stands_for_a_command_of_today() -> None:
    ctx = click.Context(main)
    assert isinstance(main, Group)
    for alias, words in (ALIASES | SHORT_NAMES).items():
        assert alias not in main.list_commands(ctx)
        found: click.Command | None = main
        for word in words:
            assert isinstance(found, Group)
            assert word in found.list_commands(ctx)
            found = found.get_command(ctx, word)
        meant = main.get_command(ctx, alias)
        assert found is not None
        assert meant is not None
        assert meant is found or isinstance(found, Group), alias


@pytest.mark.parametrize("alias", ALIASES)
@pytest.mark.parametrize("rest", ["--no-such-option", "--config", "x y z --json", "--config absent.toml no-such-word"])
def test_a_former_name_says_the_same_about_wrong_words(shell: Shell, alias: str, rest: str) -> None:
    _assert_alike(shell, f"{'job list' if alias == 'job' else alias} {rest}")  # bare `jobs` lists, bare `job` does not


RUNS = (
    "accounts --json", "accounts", "adopt 48000027", "advise", "advise H100 --hours 24 --deadline 2d",
    "approve nothing-such", "asks", "asks --json", "backtest", "backtest h100-night --json", "calendar H100",
    "checklist", "checklist h100-night --json", "checklist tick h100-night dry_epoch", "completion", "completion fish",
    "costs", "costs --json", "costs --by day --csv", "dataset", "dataset audit absent.jsonl", "db stats --json",
    "db prune --keep-days 90", "db backup copy.db --force", "db upgrade --json", "deny nothing-such",
    "emulator --port none", "export - --since 7d", "export", f"extend {ID} --by 1h", "extend abc",
    "handover h100-night --to none", "import absent.csv", "job list --json", "job list --state queued",
    "job submit absent.toml", "job show x", "job simulate --jobs none", "machines", "machines --json",
    "machines --scopes --json", "machines allow 48211", "machines --json block", "new-provider Not-A-Name",
    "notify --json", "pause --json h100-night", "pause --for never", "resume h100-night", "resume",
    "rehearse no-such-watch", "scores", "scores --json", "silence --list", "silence --list --json", "silence",
    f"stop {ID}", "stop --all --yes", "stop abc", "stop",
)  # fmt: skip


@pytest.mark.parametrize("line", RUNS)
def test_a_former_name_answers_as_today_s(stored: Shell, line: str) -> None:
    _assert_alike(stored, line)


def test_every_former_name_is_run() -> None:
    assert {line.split()[0] for line in RUNS} == set(ALIASES)


@pytest.mark.parametrize("name", ["job", "db", "dataset"])
def test_a_former_group_without_a_command_prints_its_help(shell: Shell, name: str) -> None:
    ran = shell(name)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert ran.err.startswith(f"Usage: gpuwatch {name} [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize("name", ["forecasts", "plan", "config", "store"])
def test_a_group_that_lists_nothing_prints_its_help(shell: Shell, name: str) -> None:
    ran = shell(name)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert ran.err.startswith(f"Usage: gpuwatch {name} [OPTIONS] COMMAND [ARGS]...")


@pytest.mark.parametrize("options", ["", "--json"])
@pytest.mark.parametrize("group", BARE)
def test_a_bare_group_lists(stored: Shell, group: str, options: str) -> None:
    bare, listed = stored(group, *options.split()), stored(group, "list", *options.split())
    assert bare == listed
    assert bare.code == Exit.DONE
    if options:
        assert isinstance(bare.json, list)


@pytest.mark.parametrize(
    "line", ["launches --all", "alerts --since 7d --kind held --json", "jobs --state queued --json"]
)
def test_a_bare_group_takes_the_options_of_its_list(stored: Shell, line: str) -> None:
    group, *options = line.split()
    bare = stored(group, *options)
    assert bare == stored(group, "list", *options)
    assert bare.code == Exit.DONE


def test_without_a_store_a_bare_group_cannot_tell(shell: Shell) -> None:
    for group in BARE:
        assert shell(group, "--json").code == shell(group, "list", "--json").code == Exit.CANNOT_TELL, group


def test_options_before_a_command_apply_to_it(stored: Shell) -> None:
    assert json.loads(stored("launches", "--json", "show", ID).out) == stored("launches", "show", ID, "--json").json
    other = stored("launches", "--config", "absent.toml", "show", ID)
    assert other == stored("launches", "show", ID, "--config", "absent.toml")
    assert other.code == Exit.USAGE


def test_an_unknown_command_of_a_group_is_one_line_with_a_hint(shell: Shell) -> None:
    ran = shell("launches", "shwo")
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert ran.err == "gpuwatch launches: No such command 'shwo'. Did you mean show? See: gpuwatch launches --help\n"


def test_every_group_with_a_list_lists_when_it_is_bare() -> None:
    assert isinstance(main, Group)
    lists = [name for name, entry in main.entries.items() if isinstance(entry, GroupEntry) and "list" in entry.commands]
    assert sorted(lists) == sorted(BARE)


def _assert_alike(shell: Shell, line: str) -> None:
    """The same results, but for the name that was typed and the second."""
    alias, *rest = shlex.split(line)
    former, now = shell(alias, *rest), shell(*ALIASES[alias], *rest)
    names = re.compile(rf"gpuwatch ({' '.join(ALIASES[alias])}|{alias})\b|\d\d:\d\d:[\d.]+")
    assert [names.sub("…", str(one)) for one in former] == [names.sub("…", str(one)) for one in now]


def test_a_name_after_a_group_that_takes_names_is_one(stored: Shell) -> None:
    named, listed = stored("watches", "h100-night", "--json"), stored("watches", "list", "h100-night", "--json")
    assert named.code == Exit.DONE
    assert [watch["name"] for watch in json.loads(named.out)] == ["h100-night"]
    assert named == listed
    assert stored("watches", "pause", "--help").out.startswith("Usage: gpuwatch watches pause"), "commands come first"


def test_an_unknown_name_may_have_been_meant_as_a_command(stored: Shell) -> None:
    ran = stored("watches", "rehears")
    assert ran.code == Exit.USAGE
    assert "there is no watch 'rehears'; watches: h100-night" in ran.err
    assert "did you mean gpuwatch watches rehearse?" in ran.err
