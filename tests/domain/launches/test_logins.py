"""Who can log in to which launch, and by what names."""

from __future__ import annotations

import pytest

from gpuwatch.domain.launches.instance import Instance, InstanceState, SshAddress
from gpuwatch.domain.launches.launch import COMMAND_PLACE, InstanceCondition, Launch, LaunchState
from gpuwatch.domain.launches.logins import host_names, launch_called, login_of, required_login
from gpuwatch.errors import ProviderStateUnknown, ResourceNotFound, UsageError
from gpuwatch.testing.suite import case
from tests.domain.launches.test_launch import a_launch, a_running

ADDRESS = SshAddress(host="203.0.113.7", port=41022)


def reachable(letter: str, watch: str = "h100-night") -> Launch:
    return a_running(launch_id=letter * 12, watch=watch, ssh=ADDRESS)


def test_a_launch_without_a_login_says_why_and_whether_it_may_come() -> None:
    """Exit code 3 means that a later try may help."""
    unknown, never = ProviderStateUnknown, UsageError
    condition = InstanceCondition.OUTBID
    for launch, error, words in (
        (a_running(), unknown, "vastai has not stated where to log in to instance 1"),
        (a_running(ssh=ADDRESS, condition=condition), unknown, "does not run now (outbid)"),
        (a_launch(state=LaunchState.STARTING), unknown, "is starting"),
        (a_running(ssh=ADDRESS, state=LaunchState.STOPPING), never, "is being ended"),
        (a_running(ssh=ADDRESS, state=LaunchState.ENDED, end_reason="idle"), never, "is over (idle)"),
        (a_running(provider=COMMAND_PLACE), never, "your command rented its machine"),
    ):
        with case(words):
            assert login_of(launch) is None
            with pytest.raises(error) as raised:
                required_login(launch)
            assert words in str(raised.value)
    assert required_login(reachable("b")) == ADDRESS


def test_the_name_of_a_watch_stands_only_while_one_of_its_launches_runs() -> None:
    """Otherwise it would lead to either."""
    assert host_names([reachable("b"), a_running()]) == {"b" * 12: ("gpuwatch-h100-night", f"gpuwatch-{'b' * 12}")}
    two = [reachable("b"), reachable("c"), reachable("d", "job:train"), reachable("e", "Nächte * \n?!")]
    assert list(host_names(two).values()) == [
        ("gpuwatch-bbbbbbbbbbbb",),
        ("gpuwatch-cccccccccccc",),
        ("gpuwatch-train", "gpuwatch-dddddddddddd"),
        ("gpuwatch-N-chte", "gpuwatch-eeeeeeeeeeee"),
    ]
    assert list(host_names([reachable("b", "ночь")]).values()) == [("gpuwatch-bbbbbbbbbbbb",)]


def test_a_launch_is_found_by_id_and_by_a_name_that_only_one_has() -> None:
    over = a_running(launch_id="f" * 12, watch="old", state=LaunchState.ENDED)
    of_series = reachable("e", "job:nightly@2026-12-05-0200")
    launches = [
        of_series,
        reachable("b"),
        reachable("d", "job:train"),
        a_running(launch_id="g" * 12, watch="train"),
        over,
    ]
    for name, found in (
        ("b" * 12, "b"), (f"gpuwatch-{'b' * 12}", "b"), ("h100-night", "b"), ("gpuwatch-h100-night", "b"),
        ("job:train", "d"), ("train", "d"), ("f" * 12, "f"), ("nightly", "e"), ("nightly@2026-12-05-0200", "e"),
    ):  # fmt: skip
        with case(name):
            assert launch_called(launches, name).launch_id == found * 12
    for name, error, words in (
        ("h100", ResourceNotFound, "there is no launch 'h100'"),
        ("", ResourceNotFound, "there is no launch ''"),
        ("old", UsageError, "'old' has no active launch"),
        ("twice", UsageError, "'twice' has 2 active launches: hhhhhhhhhhhh, iiiiiiiiiiii"),
    ):
        with case(name), pytest.raises(error) as raised:
            launch_called([*launches, reachable("h", "twice"), reachable("i", "twice")], name)
        assert words in str(raised.value)


def test_text_of_a_host_that_is_no_address_is_none() -> None:
    """It could be an option of the client, a command of a shell, or a line of the file of hosts."""
    for host, user in (
        ("-oProxyCommand=touch /tmp/x", None), ("1.2.3.4\nProxyCommand touch /tmp/x", None), ("1.2.3.4\n", None),
        ("$(touch x)", None), ("a b", None), ("a;b", None), ("`id`", None), ("%h", None), ("a@b", None), ("", None),
        ("ssh://a", None), ("x" * 300, None), ("\N{CYRILLIC SMALL LETTER A}.example", None), ("1.2.3.4", "-l"),
        ("1.2.3.4", "root\n"), ("1.2.3.4", "root -oX"), ("1.2.3.4", "%u"),
    ):  # fmt: skip
        with case(f"{host!r} {user!r}"):
            assert listed(host, user) is None
    assert listed("ssh5.vast.ai", None) == SshAddress(host="ssh5.vast.ai", port=41022)
    assert listed("2001:db8::1", "ubuntu") == SshAddress(host="2001:db8::1", port=41022, user="ubuntu")


def listed(host: str, user: str | None) -> SshAddress | None:
    running = InstanceState.RUNNING
    return Instance(
        instance_id="1", label=None, state=running, status="", ssh_host=host, ssh_port=41022, ssh_user=user
    ).ssh
