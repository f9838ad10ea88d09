"""The audit of machines: means, prices, verdicts, and which smaller card would do."""

from __future__ import annotations

from decimal import Decimal

from gpuwatch.domain.plan.machines.gpu_reading import GpuReading
from gpuwatch.domain.plan.machines.machine_use import GpuUse, MachineReading, Thresholds, gpu_uses
from tests.builders import NOON

LIMITS = Thresholds(70.0, 90.0)
H100 = "NVIDIA H100 80GB HBM3"
MARKET = {"A100 SXM 40GB": Decimal("0.80"), "L4": Decimal("0.40"), "H100 SXM": Decimal("2.50")}


def reading(*gpus: GpuReading, host: str = "gpu1") -> MachineReading:
    return MachineReading(host=host, at=NOON, gpus=gpus)


def busy(percent: float | None, used_gib: float, name: str = H100, total_gib: float = 79.6) -> GpuReading:
    return GpuReading(percent=percent, used_mib=used_gib * 1024, total_mib=total_gib * 1024, name=name)


def use_of(*readings: MachineReading, own: dict[str, Decimal] | None = None) -> list[GpuUse]:
    return gpu_uses(readings, own or {}, MARKET, LIMITS)


def test_a_gpu_has_the_mean_of_its_use_and_the_peak_of_its_memory() -> None:
    (use,) = use_of(reading(busy(20, 5)), reading(busy(40, 30)))
    assert (use.gpu, use.samples, use.percent, use.peak_percent, use.peak_mib) == ("H100 SXM", 2, 30, 40, 30 * 1024)
    assert use.verdict == "bottleneck"
    assert use.priced is not None
    assert (use.usd_gpu_hour, use.is_own_price, use.priced.idle_usd_hour) == (Decimal("2.50"), False, Decimal("1.75"))


def test_the_owners_price_counts_before_the_market() -> None:
    (use,) = use_of(reading(busy(50, 5)), own={"gpu1": Decimal("1.00")})
    assert use.priced is not None
    assert (use.usd_gpu_hour, use.is_own_price, use.priced.idle_usd_hour) == (Decimal("1.00"), True, Decimal("0.50"))


def test_a_smaller_card_holds_the_peak_and_stays_under_the_upper_threshold() -> None:
    """An A100 40GB has 312 of an H100's 989.4 TFLOP/s: 12 % become 38 %, and 30 % become 95 %."""
    (idle,) = use_of(reading(busy(12, 8.8)))
    names = [card.gpu.name for card in idle.smaller]
    assert names[0] == "A100 SXM 40GB"  # a price before none; an L4 would be 98 % busy
    assert round(idle.smaller[0].percent) == 38
    assert "L4" not in names
    assert not any(card.gpu.datacenter_card is False for card in idle.smaller)
    (cheap,) = use_of(reading(busy(8, 8.8)))
    assert [card.gpu.name for card in cheap.smaller][:2] == ["L4", "A100 SXM 40GB"]
    (loaded,) = use_of(reading(busy(30, 8.8)))
    assert "A100 SXM 40GB" not in [card.gpu.name for card in loaded.smaller]
    (full,) = use_of(reading(busy(12, 37)))
    assert "A100 SXM 40GB" not in [card.gpu.name for card in full.smaller]  # 10 % of it stay free


def test_a_die_of_an_amd_card_costs_its_share_and_has_no_smaller_card() -> None:
    die = busy(40, 8, "AMD Instinct MI250X", 64)
    (use,) = gpu_uses([reading(die)], {}, {"MI250X": Decimal("2.00")}, LIMITS)
    assert (use.gpu, use.usd_gpu_hour, use.smaller) == ("MI250X", Decimal("1.00"), ())
    (whole,) = gpu_uses([reading(busy(40, 8, "AMD Instinct MI300X VF", 191))], {}, {"MI300X": Decimal("2.00")}, LIMITS)
    assert (whole.gpu, whole.usd_gpu_hour) == ("MI300X", Decimal("2.00"))
    (stated,) = gpu_uses([reading(die)], {"gpu1": Decimal("0.70")}, {"MI250X": Decimal("2.00")}, LIMITS)
    assert stated.usd_gpu_hour == Decimal("0.70")


def test_cards_that_share_a_fast_link_are_not_replaced_by_cards_without_one() -> None:
    both = use_of(reading(busy(10, 8), busy(10, 8)))
    assert {card.gpu.name for use in both for card in use.smaller} & {"L4", "A30"} == set()
    assert all("A100 SXM 40GB" in [card.gpu.name for card in use.smaller] for use in both)


def test_what_is_not_measured_or_not_in_the_catalogue_has_no_advice() -> None:
    split, unknown = use_of(reading(busy(None, 30), busy(5, 10, "NVIDIA GB10")))
    assert (split.percent, split.verdict, split.priced, split.smaller, split.is_split) == (None, None, None, (), True)
    assert (unknown.gpu, unknown.usd_gpu_hour, unknown.verdict, unknown.smaller) == ("GB10", None, "bottleneck", ())
