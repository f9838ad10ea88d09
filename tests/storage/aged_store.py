"""A store in which weeks have passed: machines come, change their prices, go and come back; answers fail; an import."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from gpuwatch.domain.market.offer import Offer, OfferKind, Verification
from gpuwatch.ports import Completeness
from gpuwatch.storage.history.recording.history_recorder import SqlHistoryRecorder
from gpuwatch.storage.setup.database import Database
from tests.storage.stored_answers import an_answer, an_offer

START = datetime(2026, 1, 3, 0, 30, tzinfo=UTC)
DAYS = 68
END = START + timedelta(days=DAYS)
MIDDLE_DAY = 50
GPUS = (("H100 SXM", "H100"), ("RTX 4090", "RTX 4090"))
PROVIDERS = ("vastai", "runpod")
_EVERY = timedelta(hours=2)


def age(database: Database, first_day: int = 0, end_day: int = DAYS) -> None:
    """Record some weeks of a small market, and aggregate the hours. Equal days are equal in every store."""
    draw = random.Random(first_day)
    recorder = SqlHistoryRecorder(database)
    prices: dict[tuple[str, str, int], float] = {}
    steps_a_day = timedelta(days=1) // _EVERY
    for step in range(first_day * steps_a_day, end_day * steps_a_day):
        at = START + step * _EVERY
        for number, provider in enumerate(PROVIDERS):
            observed_at = at + timedelta(seconds=number)
            if draw.random() < 0.04:
                recorder.record_failure(provider, lane="sweep", at=observed_at, error="timeout")
                continue
            offers = [offer for gpu in GPUS for offer in _offers(draw, provider, gpu, prices, observed_at)]
            completeness = Completeness.COMPLETE if draw.random() < 0.9 else Completeness.PARTIAL
            answer = an_answer(
                *offers, provider=provider, observed_at=observed_at, completeness=completeness, rows=len(offers)
            )
            recorder.record(answer, lane="sweep" if draw.random() < 0.85 else "hunt")
    recorder.roll_up(START + timedelta(days=end_day))


def _offers(
    draw: random.Random,
    provider: str,
    gpu: tuple[str, str],
    prices: dict[tuple[str, str, int], float],
    at: datetime,
) -> list[Offer]:
    offers = []
    for machine in range(6):
        key = provider, gpu[0], machine
        if draw.random() < 0.15 or key not in prices:
            prices[key] = round(draw.uniform(1.5, 4.0), 2)
        if (at - START).days // 9 % 3 == machine % 3 or draw.random() < 0.2:
            continue  # away for days, or missing once
        offers.append(
            an_offer(
                f"m{machine}'%",
                prices[key],
                provider=provider,
                gpu=gpu[0],
                gpu_family=gpu[1],
                gpu_wire=gpu[0],
                gpu_count=1 + machine % 2,
                offer_id=str(1000 * machine + draw.randrange(2)),
                region=draw.choice(("Texas, US", "Oslo, NO", None)),
                kind=OfferKind.LISTED if machine == 5 else OfferKind.LIVE,
                verification=draw.choice((None, Verification.VERIFIED)),
                observed_at=at,
            )
        )
    return offers
