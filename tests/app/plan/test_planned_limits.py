"""What a plan writes accepts the offers that it shows, at limits that follow the recommended one."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from gpuwatch.app.jobs.job_new import NewJob, plan_new_job, planned_job_json
from gpuwatch.app.market.current_offers import CurrentOffers
from gpuwatch.app.plan.plan_job import OfferPlan, job_on_offers, rank_market
from gpuwatch.app.plan.plan_request import job_request
from gpuwatch.app.plan.plan_watch import chosen_offers, implied_watch
from gpuwatch.domain.jobs.job import new_job
from gpuwatch.domain.jobs.job_request import JobRequest
from gpuwatch.domain.jobs.job_watch import price_cap, waiting_job_watch
from gpuwatch.domain.market.money import MICRO, Commission, price_of
from gpuwatch.domain.market.offer import Offer
from gpuwatch.domain.watches.match import matches
from gpuwatch.domain.watches.watch import Watch
from gpuwatch.settings.validate import read_job_file
from tests.builders import NOON, an_offer
from tests.drawn import examples

COMMISSIONS = {"vastai": Commission("0.20")}
CARDS = {"RTX 4090": 24.0, "H100 SXM": 80.0, "A100 PCIe 80GB": 80.0, "L40S": 48.0, "GH200 96GB": 96.0}


def a_request(**changes: Any) -> JobRequest:
    return job_request({"tokens": "20M", "model": "8B", "method": "qlora", "precision": "bf16", **changes})


def limits(max_cost: float | None, within: str | None) -> dict[str, Any]:
    return {key: value for key, value in (("max_cost", max_cost), ("within", within)) if value is not None}


def plan_of(request: JobRequest, offers: Sequence[Offer]) -> OfferPlan:
    spec, needs = job_on_offers(request)
    priced = [(one, price_of(one, needs.disk_gb, COMMISSIONS.get(one.provider, Commission()))) for one in offers]
    return rank_market(
        request, spec, needs, CurrentOffers(offers=tuple(priced), as_of=NOON, source="test", is_polled=True)
    )


@st.composite
def offers(draw: st.DrawFn) -> list[Offer]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        gpu = draw(st.sampled_from(list(CARDS)))
        provider = draw(st.sampled_from(["vastai", "lambda", "runpod", "hyperstack"]))
        rated = provider == "vastai"
        found.append(
            an_offer(
                provider=provider,
                offer_id=f"o{number}",
                machine_id=f"m{number}",
                gpu=gpu,
                gpu_family=gpu.split()[0],
                gpu_wire=gpu,
                gpu_count=draw(st.sampled_from([1, 1, 2, 8])),
                gpu_memory_gib=draw(st.sampled_from([CARDS[gpu], CARDS[gpu] * 0.99, None])),
                quoted_usd_hour=draw(st.floats(0.05, 20.0)),
                reliability=draw(st.sampled_from([0.999, 0.97, 0.93, 0.8, None])) if rated else None,
                disk_free_gb=draw(st.sampled_from([None, 30.0, 40.0, 40.5, 500.0])),
                disk_usd_gb_month=draw(st.sampled_from([None, 0.2])),
                cpu_arch=draw(st.sampled_from([None, "amd64", "arm64"])),
            )
        )
    return found


LAMBDA_AND_VAST = [
    an_offer(offer_id="v", gpu="RTX 4090", gpu_family="RTX 4090", gpu_memory_gib=24.0, quoted_usd_hour=0.25),
    an_offer(provider="lambda", offer_id="l", machine_id=None, reliability=None, quoted_usd_hour=1.1),
]
DEAR = an_offer(offer_id="d", machine_id="d", quoted_usd_hour=90.0, gpu_count=8)


@settings(max_examples=examples(150), deadline=None)
@given(offers(), st.sampled_from([None, 3.0, 9.5, 40.0, 1000.0]), st.sampled_from([None, "6h", "48h"]))
@example(LAMBDA_AND_VAST, None, None)
@example([*LAMBDA_AND_VAST, DEAR], None, None)
@example([*LAMBDA_AND_VAST, DEAR], 2.0, "48h")
def test_a_job_file_accepts_every_offer_that_it_shows(
    sold: list[Offer], under: float | None, within: str | None
) -> None:
    request = a_request(**limits(under, within))
    written = NewJob(name="job", command="true", image=None, deadline=None)
    planned = plan_new_job(written, request, plan_of(request, sold))
    if planned.text is None:
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        path = Path(folder, "job.toml")
        path.write_text(planned.text)
        queued = new_job(read_job_file(path), "jobaaaa2", NOON)
    accepted = {
        match.offer for match in matches(waiting_job_watch(queued, price_cap(queued), NOON), sold, COMMISSIONS, NOON)
    }
    shown = [job_offer.offer for job_offer in planned.job_offers]
    assert [one for one in shown if one not in accepted] == []
    named = {one["offer_id"] for one in planned_job_json(planned, None)["candidates"]}
    assert named == {one.offer_id for one in shown}
    if planned.verdict != "uncertain":
        assert shown
    if under is None:  # at the limit, the slowest of these machines costs about half as much again as the cheapest
        limit = queued.definition.limit.max_price_usd_gpu_hour
        assert limit is not None
        assert queued.definition.hours is not None
        most = float(limit) * shown[0].gpu_count * queued.definition.hours.high
        assert most <= 2 * planned.job_offers[0].cost.microusd / MICRO + 0.1


@settings(max_examples=examples(150), deadline=None)
@given(offers(), st.sampled_from([None, 3.0, 40.0, 1000.0]), st.sampled_from([None, "6h", "48h"]))
@example(LAMBDA_AND_VAST, None, None)
@example([*LAMBDA_AND_VAST, DEAR], None, None)
@example([*LAMBDA_AND_VAST, DEAR], None, "48h")
def test_a_watch_follows_the_cheapest_feasible_offer(sold: list[Offer], most: float | None, within: str | None) -> None:
    request = a_request(**limits(most, within))
    plan = plan_of(request, sold)
    written = implied_watch("w", request, plan)
    if written is None:
        return
    (table,) = tomllib.loads(written)["watch"]
    best = chosen_offers(request, plan)[0]
    cost = best.cost.microusd / MICRO
    assert f"Cheapest offer: {best.offer.gpu_count}× {best.offer.gpu} at {best.offer.provider}" in written
    watch = TypeAdapter(Watch).validate_python(table)
    if most is None:
        assert cost <= table["max_job_cost"] <= 2 * cost
        assert cost <= table["budget"]["max_usd_month"] <= 2 * cost
    else:
        assert table["max_job_cost"] == most
        assert table["budget"]["max_usd_month"] <= 1.26 * most
    if cost <= table["max_job_cost"] * 0.99:
        accepted = [match.offer for match in matches(watch, sold, COMMISSIONS, NOON)]
        assert best.offer in accepted
        runtime_h = watch.launch.max_runtime_s / 3600 if watch.launch and watch.launch.max_runtime_s else 0
        assert runtime_h >= best.cost.high.hours
        assert best.price.price_microusd_hour / MICRO * runtime_h <= table["budget"]["max_usd_month"]


def test_the_basis_of_the_limits_is_in_the_watch() -> None:
    written = implied_watch("w", a_request(), plan_of(a_request(), [*LAMBDA_AND_VAST, DEAR]))
    assert written is not None
    assert written.startswith("# Cheapest offer: 1× RTX 4090 at vastai, where the job costs ")
    assert "max_job_cost: 1.5 times that" in written


def test_an_offer_that_ends_soon_does_not_count() -> None:
    ends = msgspec.structs.replace(LAMBDA_AND_VAST[0], available_until=NOON + timedelta(minutes=5))
    written = implied_watch("w", a_request(), plan_of(a_request(), [ends, LAMBDA_AND_VAST[1]]))
    assert written is not None
    assert "H100 SXM at lambda" in written
