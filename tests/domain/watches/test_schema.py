"""Valid and invalid `[[watch]]`; `test_launch_schema` tests `[watch.launch]`."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ConfigDict, TypeAdapter, ValidationError

from gpuwatch.domain.setup.durations import EnvText
from gpuwatch.domain.setup.fields import table_of
from gpuwatch.domain.watches.launch_spec import Budget, LaunchSpec
from gpuwatch.domain.watches.watch import Action, SpotPolicy, Watch
from gpuwatch.domain.watches.watch_fields import SEEN

WATCHES = TypeAdapter(Watch, config=ConfigDict(hide_input_in_errors=True))
LEAST = 'name = "w"\ngpu = "H100"\nmax_price = 3.60\n'


def watch(toml: str = "", least: str = LEAST) -> Watch:
    """Return the watch that this TOML defines."""
    return WATCHES.validate_python(tomllib.loads(least + toml, parse_float=Decimal))


def refused(toml: str = "", least: str = LEAST) -> str:
    """Return pydantic's errors for an invalid watch."""
    with pytest.raises(ValidationError) as caught:
        watch(toml, least)
    return str(caught.value)


def test_the_least_watch_has_the_defaults_of_the_contract() -> None:
    assert watch() == Watch(
        name="w",
        gpu=("H100",),
        gpu_names=("H100 SXM", "H100 PCIe", "H100 NVL", "H100"),
        max_price_usd_gpu_hour=Decimal("3.60"),
    )


def test_every_clause_arrives_in_its_unit() -> None:
    found = watch(
        """
        gpu_count = { min = 2, max = 8 }
        action = "launch"
        providers = ["vastai"]
        spot = "only"
        disk_gb = 100
        download_gb = 1.5
        upload_gb = 2
        min_vram_gib = 79
        min_reliability = 0.98
        verified = true
        datacenter = false
        regions = ["DE", "Norway"]
        min_cuda = 12.4
        min_driver = "550.54"
        min_download_mbps = 500
        min_upload_mbps = 100
        min_disk_gb = 200
        min_vcpu = 8
        min_ram_gib = 64
        min_ports = 4
        min_dlperf = 30.5
        nvlink = true
        static_ip = true
        available_for = "2d"
        usd_per_tflop_hour = 0.004
        usd_per_gib_hour = 0.05
        when = "gpu_ram >= 80 and (nvlink or gpu_count == 1)"
        any = ["nvlink", "gpu_count == 1"]
        new_low = "30d"
        drop_by = "20%"
        drop_over = "3d"
        percentile = 5
        percentile_over = "14d"
        restock = true
        hold_for = "90s"
        active = ["22:00-08:00", "Sat-Sun"]
        repeat_every = "1h30m"
        improve_by = 0.1
        rearm = 1.2
        notify = ["telegram"]
        [launch]
        image = "img"
        onstart = "a\\nb"
        env = { A = "1" }
        runtype = "args"
        template = "abc"
        max_active = 2
        max_total = 0
        max_runtime = "24h"
        ready_within = "10m"
        max_tries = 3
        quote_ttl = "0s"
        idle_below = 10
        idle_for = "20m"
        """
    )
    assert found == Watch(
        name="w",
        gpu=("H100",),
        gpu_names=("H100 SXM", "H100 PCIe", "H100 NVL", "H100"),
        max_price_usd_gpu_hour=Decimal("3.60"),
        gpu_count_min=2,
        gpu_count_max=8,
        action=Action.LAUNCH,
        providers=("vastai",),
        spot=SpotPolicy.ONLY,
        disk_gb=100,
        download_gb=1.5,
        upload_gb=2,
        min_vram_gib=79,
        min_reliability=0.98,
        verified=True,
        datacenter=False,
        regions=("DE", "Norway"),
        min_cuda=12.4,
        min_driver="550.54",
        min_download_mbps=500,
        min_upload_mbps=100,
        min_disk_gb=200,
        min_vcpu=8,
        min_ram_gib=64,
        min_ports=4,
        min_dlperf=30.5,
        max_usd_tflop_hour=Decimal("0.004"),
        max_usd_gib_hour=Decimal("0.05"),
        when="gpu_ram >= 80 and (nvlink or gpu_count == 1)",
        any_of=("nvlink", "gpu_count == 1"),
        new_low_s=2_592_000,
        drop_by=0.2,
        drop_over_s=259_200,
        percentile=5,
        percentile_over_s=1_209_600,
        restock=True,
        nvlink=True,
        static_ip=True,
        available_for_s=172_800,
        hold_for_s=90,
        active=("22:00-08:00", "Sat-Sun"),
        repeat_every_s=5400,
        improve_by=0.1,
        rearm=1.2,
        notify=("telegram",),
        launch=LaunchSpec(
            image="img",
            onstart="a\nb",
            env={"A": "1"},
            runtype="args",
            template="abc",
            max_active=2,
            max_total=0,
            max_runtime_s=86_400,
            ready_within_s=600,
            max_tries=3,
            quote_ttl_s=0,
            idle_below=10,
            idle_for_s=1200,
        ),
    )


def test_every_field_of_the_values_can_be_written() -> None:
    """A clause that exists only in the engine could never be set."""
    of_watch = {"gpu_names", "gpu_count_min", "gpu_count_max", "max_price_usd_gpu_hour", "unlimited", "auto"}
    computed = {
        Watch: of_watch | {"records", "past", "spot_until", "only_observed"},
        LaunchSpec: {"env", "secret_env"},
        Budget: set[str](),
    }
    for spec, others in computed.items():
        written = set(table_of(spec).model_fields) - set(get_type_hints(spec.Keys))
        assert len(written) == len(set(spec.__struct_fields__) - others)


def test_the_seed_scripts_name_finds_all_its_cards() -> None:
    names = watch(least=LEAST.replace("H100", "H100 80GB")).gpu_names
    assert names == ("H100 SXM", "H100 PCIe", "H100 NVL", "H100")


def test_a_name_that_nobody_spells_so_is_a_fault_with_a_guess() -> None:
    assert "unknown GPU 'H100 SXN'; did you mean H100 SXM" in refused(least=LEAST.replace("H100", "H100 SXN"))


def test_a_spelling_seen_at_a_provider_stands_for_itself() -> None:
    token = SEEN.set(["New GPU 1"])
    try:
        assert watch(least=LEAST.replace("H100", "new-gpu-1")).gpu_names == ("New GPU 1",)
    finally:
        SEEN.reset(token)


def test_reminders_can_be_switched_off() -> None:
    assert watch('repeat_every = "never"').repeat_every_s is None


@pytest.mark.parametrize(("written", "least", "most"), [("4", 4, 4), ("{ min = 2 }", 2, 1024), ("{ max = 3 }", 1, 3)])
def test_a_gpu_count_is_a_number_or_a_range(written: str, least: int, most: int) -> None:
    found = watch(f"gpu_count = {written}")
    assert (found.gpu_count_min, found.gpu_count_max) == (least, most)


@pytest.mark.parametrize("price", ["0", "-1", "nan", "inf", "true", '"3"', "1e30", "1e-999999", "[3]"])
def test_an_impossible_price_is_a_fault(price: str) -> None:
    assert "max_price" in refused(least=LEAST.replace("3.60", price))


@pytest.mark.parametrize(
    "toml",
    [
        "unknown = 1",
        'name = ""',
        "gpu = []",
        "gpu = 3",
        "gpu_count = 0",
        "gpu_count = 1.0",
        "gpu_count = true",
        "gpu_count = { min = 3, max = 2 }",
        "gpu_count = { least = 3 }",
        'action = "buy"',
        "spot = true",
        "disk_gb = 0",
        "disk_gb = -5",
        "min_reliability = 98",
        'verified = "yes"',
        "verified = 1",
        "regions = [1]",
        "min_driver = 550",
        'min_driver = "newest"',
        'min_driver = "550."',
        'hold_for = "5"',
        "hold_for = 5",
        'active = ["8-9"]',
        'active = ["Xyz"]',
        'repeat_every = "sometimes"',
        "improve_by = 1.5",
        "rearm = 0.5",
        "min_ports = 1.5",
        "launch = 3",
        "[launch]\nmax_active = 0",
        "[launch]\nmax_total = -1",
        '[launch]\nmax_runtime = "0s"',
        "[launch]\nenv = { A = 1 }",
        '[launch]\nenv = { "A=B" = "1" }',
        "[launch]\nidle_below = 10",
        '[launch]\nidle_for = "5m"',
    ],
)
def test_an_impossible_clause_is_a_fault(toml: str) -> None:
    name = toml.rpartition("\n")[2].partition(" ")[0]
    replaced = "".join(line + "\n" for line in LEAST.splitlines() if not line.startswith(f"{name} "))
    assert name.removesuffix("_below").removesuffix("_for") in refused(toml, replaced)


def test_no_fault_quotes_what_was_written() -> None:
    assert "s3cr3t" not in refused('[launch]\nenv = { A = ["s3cr3t"] }\nonstart = ["s3cr3t"]')


def test_text_of_the_environment_becomes_what_its_key_needs() -> None:
    given_ = {
        "name": EnvText("7"),
        "gpu": EnvText("H100"),
        "max_price": EnvText("3.60"),
        "verified": EnvText("TRUE"),
        "min_ports": EnvText("3"),
        "hold_for": EnvText("5m"),
    }
    found = WATCHES.validate_python(given_)
    assert (found.name, found.gpu, found.min_ports, found.verified) == ("7", ("H100",), 3, True)
    assert str(found.max_price_usd_gpu_hour) == "3.60"


@given(st.decimals(min_value="0.000001", max_value="999999", places=6))
def test_a_price_is_exact_to_the_last_digit(price: Decimal) -> None:
    assert watch(least=LEAST.replace("3.60", f"{price:f}")).max_price_usd_gpu_hour == price


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(table_of(Watch).model_fields)), _VALUES, max_size=4))
def test_whatever_is_written_is_a_watch_or_a_fault(values: dict[str, Any]) -> None:
    """No value crashes the schema."""
    with suppress(ValidationError):
        WATCHES.validate_python({"name": "w", "gpu": "H100", "max_price": 1, **values})


@pytest.mark.parametrize(
    ("text", "deadline"), [("2d", 172_800.0), ("2026-12-01T08:00:00Z", "2026-12-01T08:00:00+00:00")]
)
def test_a_deadline_is_a_duration_or_a_time_as_text(text: str, deadline: object) -> None:
    auto = watch(f'max_price_cap = 3\ndeadline = "{text}"', LEAST.replace("3.60", '"auto"')).auto
    assert auto is not None
    found = auto.deadline_s or auto.deadline_at
    assert (found.isoformat() if isinstance(found, datetime) else found) == deadline


def test_a_condition_on_gpus_knows_the_same_names_as_gpu() -> None:
    assert watch("when = \"gpu == 'h100_sxm5'\"").when == "gpu == 'h100_sxm5'"
    assert "unknown GPU 'H10O'; did you mean H100" in refused("when = \"gpu_count == 1 or gpu == 'H10O'\"")
    assert "unknown GPU 'H10O'; did you mean H100" in refused("any = [\"nvlink\", \"not (gpu in ('A100', 'H10O'))\"]")


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("country == 'Germny'", "is called 'Germny'; did you mean Germany"),
        ("nvlink or country in ('DE', 'Texas')", "unknown country 'Texas'; expected an ISO code or name, or EU"),
        ("not cpu_arch == 'x86'", "cpu_arch is 'x86_64' or 'arm64'"),
    ],
)
def test_a_condition_that_no_offer_can_meet_is_refused(condition: str, said: str) -> None:
    assert said in refused(f'when = "{condition}"')


def test_a_fraction_is_from_nothing_to_the_whole() -> None:
    assert (watch("min_reliability = 0").min_reliability, watch("min_reliability = 1").min_reliability) == (0.0, 1.0)
    assert "less than or equal to 1" in refused("min_reliability = 1.01")


@pytest.mark.parametrize(
    ("text", "share"), [('"1%"', 0.01), ('"0%"', 0.0), ('"2.5 %"', 0.025), ("0.02", 0.02), ("0", 0.0)]
)
def test_a_tie_is_a_percentage_or_a_fraction(text: str, share: float) -> None:
    assert watch(f"tie = {text}").tie == pytest.approx(share)


@pytest.mark.parametrize("text", ['"1"', '"-1%"', '"101%"', '"%"', '"nan%"', "true", "1", "1.5", '"one"'])
def test_a_tie_that_is_no_share_is_refused(text: str) -> None:
    assert 'such as "1%"' in refused(f"tie = {text}")
