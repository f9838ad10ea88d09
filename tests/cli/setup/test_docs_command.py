"""`gpuwatch docs`, and `gpuwatch providers emulator`, which the pages use."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from gpuwatch.cli.setup.help_commands import documentation_pages
from tests.checkout import ROOT
from tests.cli.conftest import Shell


def test_without_a_topic_every_page_is_listed_with_its_title(shell: Shell) -> None:
    ran = shell("docs")
    listed = dict(line.split(maxsplit=1) for line in ran.out.splitlines())
    assert listed["settings"] == "Settings"
    assert listed["providers/runpod"] == "RunPod"
    assert set(listed) == set(documentation_pages())
    assert len(listed) == len([one for folder in ("", "providers/", "ru/") for one in ROOT.glob(f"docs/{folder}*.md")])


@pytest.mark.parametrize("topic", ["settings", "settings.md", "docs/settings.md#secrets", "SETTINGS"])
def test_a_page_is_printed_as_it_is_into_a_pipe(shell: Shell, topic: str) -> None:
    assert shell("docs", topic).out == (ROOT / "docs/settings.md").read_text()


def test_a_provider_is_named_by_its_last_word(shell: Shell) -> None:
    assert shell("docs", "runpod").out == (ROOT / "docs/providers/runpod.md").read_text()


@pytest.mark.parametrize(("topic", "meant"), [("setings", "settings"), ("runpd", "providers/runpod")])
def test_a_mistyped_topic_gets_a_suggestion(shell: Shell, topic: str, meant: str) -> None:
    ran = shell("docs", topic)
    assert (ran.code, ran.err) == (2, f"no page {topic!r}; did you mean {meant}?\n")


def test_a_topic_that_is_near_nothing_leads_to_the_list(shell: Shell) -> None:
    ran = shell("docs", "xyzzy")
    assert (ran.code, ran.err) == (2, "no page 'xyzzy'; run `gpuwatch docs` to list the pages\n")


def test_the_emulator_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "gpuwatch", "emulator", "--size", "5", "--control"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        with urlopen(f"{url}/control/instances", timeout=240) as answer:
            assert answer.status == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(240) == 0


def _samples() -> Iterator[tuple[str, str, str]]:
    """Yield page, command and printed text of each sample that needs neither a store nor a network."""
    for page in sorted(ROOT.glob("docs/*.md")):
        for block in re.findall(r"(?ms)^```\w*\n(\$ gpuwatch .*?)^```", page.read_text()):
            for sample in re.split(r"(?m)^\$ (?=gpuwatch )", block)[1:]:
                command, _, printed = re.sub(r" *\\\n *", " ", sample).partition("\n")
                is_fixed = "--data tests/" in command or re.match(r"gpuwatch plan (?!dataset)", command)
                if printed.strip() and is_fixed and "…\n" not in printed:
                    yield page.name, command.removeprefix("gpuwatch "), printed.strip()


@pytest.mark.parametrize(("page", "command", "printed"), list(_samples()), ids=lambda text: text[:40])
def test_a_sample_in_a_page_is_what_the_program_prints(
    shell: Shell, page: str, command: str, printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    (shell.folder / "tests").symlink_to(ROOT / "tests")
    ran = shell(*shlex.split(command))
    assert printed in (ran.out.strip(), (ran.out + ran.err).strip()), page


def test_a_word_that_names_no_page_finds_the_pages_with_it_in_a_heading(shell: Shell) -> None:
    ran = shell("docs", "time zone")
    assert ran.code == 2
    assert ran.err.startswith("no page 'time zone'; it is in a heading of: faq")
