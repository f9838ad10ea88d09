"""EC2's XML with hostile values: offers and instances stay valid, or the answer is rejected."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

import pytest

from gpuwatch.errors import ProviderError
from gpuwatch.ports import Query
from gpuwatch.testing.invariants import answer_problems, instance_problems
from gpuwatch.testing.relay import relaying
from tests.clouds.aws import Ec2
from tests.providers.aws.aws_bench import asking, order

VALUES = (
    "", " ", "NaN", "Infinity", "-1", "0", "1e999", "9" * 400, "x" * 5000, "&#8238;", "&#xE000;", "none", "true", "{}",
    "<item/>", "2026-11-21T09:14:03.000Z", "9999-99-99", "0001-01-01T00:00:00Z", "<a>" * 300 + "</a>" * 300,
)  # fmt: skip


def _spoiled(rate: float, seed: int) -> Callable[[bytes], bytes]:
    dice = Random(seed)

    def change(found: re.Match[bytes]) -> bytes:
        if dice.random() > rate:
            return found[0]
        if dice.random() < 0.2:
            return b"><"  # the element is empty
        return b">" + dice.choice(VALUES).encode() + b"<"

    def corrupt(body: bytes) -> bytes:
        head, mark, rest = body.partition(b"?>")
        return body if not mark or b"<" not in head else head + mark + re.sub(rb">([^<>{}]+)<", change, rest)

    return corrupt


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_offers_out_of_hostile_xml_are_sound(rate: float) -> None:
    answered = 0
    with Ec2(page=50) as place, relaying(place.url) as relay:
        for seed in range(3):
            for spot in (False, True):
                relay.requests.clear()
                relay.corrupt = _spoiled(rate, seed)
                with asking(relay.url, regions=("us-east-1",)) as adapter:
                    try:
                        answer = adapter.market.search(Query(spot=spot))
                    except ProviderError:
                        continue
                answered += 1
                assert answer_problems(answer, adapter.info) == [], f"seed {seed}"
    assert answered or rate > 0.1, "some answers are good enough to be used"


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_a_list_out_of_hostile_xml_is_whole_and_sound_or_none(rate: float) -> None:
    listed = 0
    with (
        Ec2(page=50) as place,
        relaying(place.url) as relay,
        asking(relay.url, regions=("us-east-1",), list_regions=("us-east-1",)) as adapter,
    ):
        assert adapter.launcher is not None
        for zone in ("us-east-1a", "us-east-1b"):
            adapter.launcher.create(order(f"us-east-1/{zone}/g5.xlarge/on-demand"))
        for seed in range(12):
            relay.requests.clear()
            relay.corrupt = _spoiled(rate, seed)
            try:
                found = adapter.launcher.list_instances()
            except ProviderError:
                continue
            listed += 1
            assert [odd for one in found for odd in instance_problems(one)] == [], f"seed {seed}"
            assert len(found) == 2, f"seed {seed}: a malformed instance must not be omitted"
    assert listed or rate > 0.1
