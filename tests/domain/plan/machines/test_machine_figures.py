"""Metrics of own machines: what is not measured is absent, and a part of a card costs its share."""

from __future__ import annotations

from decimal import Decimal

from gpuwatch.domain.plan.machines.gpu_reading import GpuReading
from gpuwatch.domain.plan.machines.machine_figures import machine_prices, machine_values
from gpuwatch.domain.plan.machines.machine_use import MachineReading
from tests.builders import NOON

DIE = GpuReading(percent=50, used_mib=8000, total_mib=65520, name="AMD INSTINCT MI250 (MCM) OAM AC MBA")
LOST = GpuReading()


def machine(*gpus: GpuReading) -> MachineReading:
    return MachineReading(host="gpu1", at=NOON, gpus=gpus)


def test_a_die_costs_its_share_of_the_market_and_what_the_owner_states() -> None:
    best = {("vastai", "MI250"): 2.0, ("runpod", "MI250"): 1.6}
    prices = machine_prices([machine(DIE)], {}, best, "other")["gpuwatch_own_gpu_price_usd_hour"]
    assert prices == {("gpu1", "MI250", "0"): 1.6 * 65520 / 1024 / 128}
    stated = machine_prices([machine(DIE)], {"gpu1": Decimal("0.7")}, best, "other")
    assert stated["gpuwatch_own_gpu_price_usd_hour"] == {("gpu1", "MI250", "0"): 0.7}


def test_a_lost_gpu_has_no_figures_and_its_machine_is_up() -> None:
    values = machine_values([machine(DIE, LOST)], "other")
    assert values["gpuwatch_own_machine_up"] == {("gpu1",): 1.0}
    assert values["gpuwatch_own_gpu_utilization_ratio"] == {("gpu1", "MI250", "0"): 0.5}
    assert set(values["gpuwatch_own_gpu_memory_total_bytes"]) == {("gpu1", "MI250", "0")}
