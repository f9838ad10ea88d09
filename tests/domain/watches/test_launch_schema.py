"""Valid and invalid `[watch.launch]`, `[watch.budget]` and `[budget]`."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gpuwatch.domain.launches.instance import EXTRA_LENGTH, label_of
from gpuwatch.domain.setup.fields import table_of
from gpuwatch.domain.watches.launch_spec import (
    LABEL_EXTRA_MAX,
    BidSpec,
    Budget,
    BudgetPolicy,
    HookSpec,
    LaunchSpec,
    PriceIncreasePolicy,
    RegistrySpec,
    VerificationMode,
    VolumeSpec,
)
from gpuwatch.secret import Secret

LAUNCHES = TypeAdapter(LaunchSpec, config=ConfigDict(hide_input_in_errors=True))


def launch(toml: str) -> LaunchSpec:
    """Return the launch that this TOML defines."""
    return LAUNCHES.validate_python(tomllib.loads(toml, parse_float=Decimal))


def refused(toml: str) -> str:
    """Return pydantic's errors for an invalid one."""
    with pytest.raises(ValidationError) as caught:
        launch(toml)
    return str(caught.value)


def test_what_is_not_written_has_the_defaults_of_the_values() -> None:
    assert launch("") == LaunchSpec()


def test_every_key_arrives_in_its_unit() -> None:
    found = launch(
        """
        image = "img"
        template = "abc"
        onstart = "a\\nb"
        env = { A = "1" }
        ports = [8000, "8080:8000", "53/udp"]
        runtype = "jupyter_direct"
        registry = { server = "ghcr.io", username = "me", password = "t0k3n" }
        volume = { mount = "/data", volume_id = 123, size_gb = 100 }
        label_extra = "night run"
        max_active = 2
        max_total = 0
        max_runtime = "24h"
        ready_within = "10m"
        max_tries = 3
        try_for = "1m"
        quote_ttl = "0s"
        approve_within = "5m"
        bid = { max = 1.20, step = 0.01 }
        relaunch = true
        self_destruct = true
        verify = "ssh"
        ssh_key = "/keys/id"
        wasteful_below = 50
        wasteful_for = "10m"
        idle_below = 10
        idle_for = "20m"
        stop_outside = true
        on_price_increase = "accept_under"
        on_running = "echo up"
        before_stop = { url = "https://h.example.org/x", secret = "sign" }
        on_ended = { url = "http://localhost:1" }
        hook_timeout = "5m"
        """
    )
    assert found == LaunchSpec(
        image="img",
        template="abc",
        onstart="a\nb",
        env={"A": "1"},
        ports=("8000", "8080:8000", "53/udp"),
        runtype="jupyter_direct",
        registry=RegistrySpec(server="ghcr.io", username="me", password=Secret("t0k3n")),
        volume=VolumeSpec(mount="/data", volume_id="123", size_gb=100),
        label_extra="night run",
        max_active=2,
        max_total=0,
        max_runtime_s=86_400,
        ready_within_s=600,
        max_tries=3,
        try_for_s=60,
        quote_ttl_s=0,
        approve_within_s=300,
        bid=BidSpec(max_usd_gpu_hour=Decimal("1.20"), step_usd_gpu_hour=Decimal("0.01")),
        relaunch=True,
        self_destruct=True,
        verify=VerificationMode.SSH,
        ssh_key="/keys/id",
        wasteful_below=50,
        wasteful_for_s=600,
        idle_below=10,
        idle_for_s=1200,
        stop_outside=True,
        on_price_increase=PriceIncreasePolicy.ACCEPT_UNDER,
        on_running=HookSpec(command="echo up"),
        before_stop=HookSpec(url=Secret("https://h.example.org/x"), secret=Secret("sign")),
        on_ended=HookSpec(url=Secret("http://localhost:1")),
        hook_timeout_s=300,
    )


def test_every_key_of_a_budget_arrives() -> None:
    toml = 'max_usd_hour = 1.5\nmax_usd_day = 2\nmax_usd_month = 3\nmax_instances = 4\non_reached = "stop"'
    assert TypeAdapter(Budget).validate_python(tomllib.loads(toml, parse_float=Decimal)) == Budget(
        max_usd_hour=Decimal("1.5"),
        max_usd_day=Decimal(2),
        max_usd_month=Decimal(3),
        max_instances=4,
        on_reached=BudgetPolicy.STOP,
    )


@pytest.mark.parametrize(("written", "image"), [("", "vastai/pytorch"), ('image = "i"', "i")])
def test_without_a_template_there_is_always_an_image(written: str, image: str) -> None:
    assert launch(written).image == image


def test_a_template_brings_its_own_image_and_runtype_unless_they_are_written() -> None:
    found = launch('template = "abc"')
    assert (found.image, found.runtype) == ("", "")
    found = launch('template = "abc"\nimage = "vastai/pytorch"\nruntype = "ssh"')
    assert (found.image, found.runtype) == ("vastai/pytorch", "ssh")


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ("8000", ("8000",)),
        ('"8000/tcp"', ("8000",)),
        ('["08000", 1, 65535]', ("8000", "1", "65535")),
        ('["70:53/udp"]', ("70:53/udp",)),
        ("[]", ()),
    ],
)
def test_a_port_is_a_number_a_pair_or_udp(written: str, ports: tuple[str, ...]) -> None:
    assert launch(f"ports = {written}").ports == ports


def test_a_bid_rises_by_five_cents_by_default_and_its_max_may_be_under_that() -> None:
    bid = launch("bid = { max = 0.03 }").bid
    assert bid == BidSpec(max_usd_gpu_hour=Decimal("0.03"), step_usd_gpu_hour=Decimal("0.05"))


def test_a_label_keeps_as_much_of_the_extra_text_as_the_documents_state() -> None:
    label = label_of("abcdefghijkl", "x" * LABEL_EXTRA_MAX, install_id="abcdefgh", watch_id="abcdefgh")
    assert (len(label), label.endswith(" " + "x" * EXTRA_LENGTH)) == (60, True)
    assert launch(f'label_extra = "{"x" * LABEL_EXTRA_MAX}"').label_extra == "x" * LABEL_EXTRA_MAX


@pytest.mark.parametrize(
    "toml",
    [
        'image = ""',
        'onstart = ""',
        'onstart = "  "',
        f'onstart = "{"x" * 4001}"',
        "onstart_file = 3",
        "env = 3",
        "env = { A = 1 }",
        'env = { "A=B" = "1" }',
        'env = { "-p 22:22" = "1" }',
        'env = { "A B" = "1" }',
        'env = { GPUWATCH_DEADLINE = "1" }',
        'env = { A = "a\\u0000b" }',
        'env = { A = { from_env = "A", from_file = "b" } }',
        'env = { A = { from_vault = "A" } }',
        "env = { A = { from_env = 3 } }",
        'env = { A = { from_env = " " } }',
        "ports = [0]",
        "ports = [65536]",
        "ports = [true]",
        "ports = true",
        "ports = [-1]",
        'ports = ["80:"]',
        'ports = ["80-90"]',
        'ports = ["80/icmp"]',
        'ports = ["8000 -v /:/host"]',
        'runtype = "shh"',
        "registry = 3",
        'registry = { server = "ghcr.io", username = "me" }',
        'registry = { server = "ghcr.io", username = "me", password = "a b" }',
        'registry = { server = "ghcr.io", username = "me", password = "a\\"b" }',
        'registry = { server = "ghcr.io", username = "me -v", password = "a" }',
        'registry = { server = "ghcr.io", username = "me", password = "" }',
        'volume = { mount = "/data" }',
        'volume = { mount = "/data", size_gb = 1 }',
        'volume = { mount = "/data", volume_id = true }',
        'volume = { mount = "data", volume_id = 1 }',
        'volume = { mount = "/data/../..", volume_id = 1 }',
        'volume = { mount = "/data", volume_id = 1, size_gb = 0 }',
        'label_extra = "é"',
        'label_extra = ""',
        'label_extra = "a\\nb"',
        f'label_extra = "{"x" * (LABEL_EXTRA_MAX + 1)}"',
        "max_active = 0",
        "max_active = true",
        "max_total = -1",
        'max_runtime = "0s"',
        'try_for = "0.5s"',
        'approve_within = "0s"',
        "bid = 1.20",
        "bid = { step = 0.05 }",
        "bid = { max = 0 }",
        "bid = { max = nan }",
        "bid = { max = 1.20, step = 0 }",
        "bid = { max = 1.20, step = 1.30 }",
        'relaunch = "yes"',
        "self_destruct = 1",
        'verify = "ping"',
        "wasteful_below = 0",
        "wasteful_below = 101",
        "idle_below = 10",
        'idle_for = "5m"',
        'stop_outside = "yes"',
        'on_price_increase = "accept"',
        'on_running = ""',
        "on_running = 3",
        "on_running = {}",
        'on_running = { url = "ftp://x" }',
        'on_running = { url = "https://x/#y" }',
        'on_running = { url = "https://[x" }',
        'on_running = { secret = "x" }',
        'on_running = { command = "x", secret = "x" }',
        'on_running = { url = "https://x", command = "x" }',
        'on_running = { url = "https://x", secret = "" }',
        'hook_timeout = "0.5s"',
        'hook_timeout = "6m"',
    ],
)
def test_an_impossible_key_is_a_fault(toml: str) -> None:
    name = toml.partition(" ")[0]
    assert name.removesuffix("_below").removesuffix("_for") in refused(toml)


def test_no_fault_quotes_what_was_written() -> None:
    said = refused(
        """
        onstart = ["s3cr3t"]
        env = { A = ["s3cr3t"], B = { from_vault = "s3cr3t" } }
        registry = { server = "s3cr3t x", username = ["s3cr3t"], password = "s3cr3t x" }
        on_running = { url = "s3cr3t", secret = ["s3cr3t"] }
        before_stop = ["s3cr3t"]
        """
    )
    assert "s3cr3t" not in said
    assert said.count("Value error") >= 6


def test_no_repr_shows_a_secret() -> None:
    toml = """
        onstart = "s3cr3t"
        env = { A = "s3cr3t" }
        registry = { server = "h", username = "u", password = "s3cr3t" }
        on_running = { url = "https://s3cr3t@h", secret = "s3cr3t" }
        on_ended = "s3cr3t"
        """
    assert "s3cr3t" not in repr(launch(toml))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["url", "max", "mount", "password", "from_env", "A"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(table_of(LaunchSpec).model_fields)), _VALUES, max_size=4))
def test_whatever_is_written_is_a_launch_or_a_fault(values: dict[str, Any]) -> None:
    """No value crashes the schema."""
    with suppress(ValidationError):
        LAUNCHES.validate_python(values)


def test_a_percentage_may_be_less_than_one_and_not_nothing() -> None:
    assert launch('idle_below = 0.5\nidle_for = "20m"').idle_below == 0.5
    assert "greater than 0" in refused('idle_below = 0\nidle_for = "20m"')
