"""An unreachable provider is reported at once: nobody waits for a turn that would change nothing."""

from __future__ import annotations

import time

import pytest

from tests.cli.conftest import Shell

NOWHERE = ["http://127.0.0.1:1", "http://no-such-host.invalid"]
WATCHES = "".join(
    f'[[watch]]\nname = "w{n}"\ngpu = "H100"\nmax_price = 3\nspot = "any"\nmin_reliability = 0.{n}\n' for n in (7, 8, 9)
)
TURN_S = 60  # between two searches: waiting for a second one exceeds the limit below
BOUND_S = 30  # a fraction of a second, with room for a machine under load


@pytest.fixture(params=NOWHERE, ids=["refused", "unknown host"])
def unreachable(request: pytest.FixtureRequest, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """vast.ai at an address without a listener, with real waits."""
    monkeypatch.delenv("GPUWATCH_TEST_PACE")
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__BASE_URL", request.param)
    monkeypatch.setenv("GPUWATCH_PROVIDERS__VASTAI__SEARCH_INTERVAL", f"{TURN_S}s")
    shell.settings(WATCHES)
    return shell


@pytest.mark.parametrize(
    "argv",
    [("check", "--no-store"), ("check", "--no-store", "--explain"), ("offers", "--gpu", "H100", "--timeout", "200s")],
    ids=["check", "explain", "offers"],
)
def test_without_a_connection_a_command_answers_at_once(unreachable: Shell, argv: tuple[str, ...]) -> None:
    began = time.monotonic()
    ran = unreachable(*argv)
    assert time.monotonic() - began < BOUND_S
    assert ran.code == 3
    assert "cannot tell" in ran.out + ran.err
    assert "127.0.0.1:1" in ran.err or "no-such-host.invalid" in ran.err
