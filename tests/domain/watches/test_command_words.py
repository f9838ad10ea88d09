"""The arguments of a command: as many as the owner wrote, whatever a host wrote."""

from __future__ import annotations

from decimal import Decimal

import pytest

from gpuwatch.domain.watches.launch_spec import LaunchSpec
from gpuwatch.domain.watches.orchestrator_task import PLACEHOLDERS, filled_words, plain_word, word_faults
from gpuwatch.domain.watches.watch import Action
from gpuwatch.testing.hostile import HOSTILE_VALUES
from tests.builders import a_match, a_watch, an_offer, changed

WATCH = a_watch(
    name="H100 night",
    action=Action.COMMAND,
    gpu_count_max=2,
    max_price_usd_gpu_hour=Decimal("3.60"),
    launch=LaunchSpec(max_runtime_s=7200.0),
    command=(
        "rent",
        "--at={provider}/{region}",
        "{gpu}:{gpu_count}",
        "{max_price}",
        "{price_usd_hour}",
        "{watch}",
        "{name}",
    ),
)


def test_every_placeholder_is_filled_within_its_word() -> None:
    match = a_match(an_offer(gpu_count=2, quoted_usd_hour=5.0))
    assert filled_words(WATCH, match, "abc") == (
        "rent", "--at=vastai/Utah", "H100 SXM:2", "7.2000", "6.0000", "H100 night", "gpuwatch-h100-night",
    )  # fmt: skip
    every = changed(WATCH, command=tuple(f"{{{name}}}" for name in PLACEHOLDERS))
    assert not any("{" in word for word in filled_words(every, match, "abc"))


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("--flag", "flag"),
        ("; rm -rf ~", "_ rm -rf _"),
        ("$(reboot)`x`", "__reboot__x_"),
        ("../../etc/passwd", "_/_/etc/passwd"),
        ("/etc/passwd", "etc/passwd"),
        ("a\nb\0c", "a_b_c"),
        ("{launch_id}", "_launch_id_"),
        ("Île-de-France, FR", "Île-de-France, FR"),
        (None, ""),
    ],
)
def test_what_a_host_wrote_is_made_plain(written: str | None, found: str) -> None:
    assert plain_word(written) == found
    words = filled_words(WATCH, a_match(an_offer(region=written)), "abc")
    assert (len(words), words[1]) == (len(WATCH.command), f"--at=vastai/{found}")


@pytest.mark.parametrize("written", [value for value in HOSTILE_VALUES if isinstance(value, str)])
def test_no_hostile_text_becomes_an_option_a_path_or_a_line(written: str) -> None:
    found = plain_word(written)
    assert not found.startswith(("-", ".", "/"))
    assert not set(found) & set("\n\r\0;|&$`<>\"'\\(){}*?~!@=#%^[]")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("{provider}", "x"), "expected a program as the first word, without a placeholder"),
        (("rent", "{place}"), "unknown placeholder {place}"),
        (("sh", "-c", "rent {region}"), "no placeholder in a script"),
        (("/bin/bash", "-ec", "rent {region}"), "no placeholder in a script"),
    ],
)
def test_a_command_that_cannot_be_meant_is_a_fault(words: tuple[str, ...], fault: str) -> None:
    (found,) = word_faults(words)
    assert found.startswith(fault)


def test_a_shell_that_is_given_its_values_and_other_braces_are_no_fault() -> None:
    assert not list(word_faults(("sh", "-c", 'rent "$1"', "sh", "{region}")))
    assert not list(word_faults(("curl", "-d", '{"a": 1}', "{provider}")))
