"""EC2's machines without GPUs: searched only for those who want them, priced and rented like others."""

from __future__ import annotations

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.domain.market.offer import NO_GPU, OfferKind
from gpuwatch.domain.market.search_query import query_of
from gpuwatch.errors import PayloadChanged
from gpuwatch.ports import Launcher, Query
from gpuwatch.ports.prerequisites import PrerequisiteName, PrerequisiteProbe
from gpuwatch.providers.aws import IMAGE
from gpuwatch.providers.aws.create import image_of
from gpuwatch.providers.aws.offers import OfferId, cpu_table, table
from gpuwatch.providers.aws.prerequisites import quota_of, vcpus_in_use
from gpuwatch.testing.suite import case
from tests.clouds.aws import Ec2
from tests.clouds.aws_account import KEY_PAIR, SSH_GROUP, Ec2Account
from tests.clouds.aws_market import CPU_TYPES, MARKET
from tests.clouds.aws_pages import PricePages
from tests.providers.aws.aws_bench import DISK_USD_HOUR, NOW, asking, launcher_of, order, sent_to

CPU = query_of(NO_GPU, spot=False)
C7A = "us-east-1/us-east-1a/c7a.4xlarge/on-demand"


def ec2_says() -> dict[str, dict[str, Any]]:
    """EC2's answer to DescribeInstanceTypes, from moto's data, without loading moto."""
    found = find_spec("moto")
    assert found is not None
    assert found.origin is not None
    packed = Path(found.origin).parent / "ec2/resources/instance_types.json.gz"
    rows: dict[str, dict[str, Any]] = json.loads(gzip.decompress(packed.read_bytes()))
    return rows


def sent(place: Ec2) -> list[str]:
    """Return each request, with its parameters; the times in them are those of the clock."""
    return sorted(f"{one.path} {sorted(one.params.items())} {one.raw!r}" for one in place.requests)


def test_every_type_of_the_table_is_one_of_ec2s_without_a_gpu_that_anybody_rents() -> None:
    known = ec2_says()
    for name, machine in cpu_table().items():
        with case(name):
            row = known[name]
            assert not row.get("GpuInfo")
            assert not row.get("BareMetal")
            assert row["ProcessorInfo"]["SupportedArchitectures"] == [machine.arch]
            assert set(row["SupportedUsageClasses"]) == {"on-demand", "spot"}
    assert not cpu_table().keys() & table().keys()
    assert len(",".join(cpu_table())) <= 1024, "one request has the list prices of all of them"


def test_they_are_offers_of_their_own_query_with_the_size_and_price_of_the_price_list(place: Ec2) -> None:
    with asking(place.url) as adapter:
        found = adapter.market.search(CPU).offers
        spot = adapter.market.search(query_of(NO_GPU, spot=True)).offers
    assert {offer.terms.instance_type for offer in (*found, *spot)} == CPU_TYPES
    assert len(found) == len(spot) == sum(sold.type in CPU_TYPES for sold in MARKET)
    [offer] = [one for one in found if one.offer_id == C7A]
    assert (offer.gpu, offer.gpu_count, offer.gpu_memory_gib, offer.gpu_known) == (NO_GPU, 0, None, True)
    assert (offer.vcpu, offer.ram_gib, offer.kind) == (16, 32, OfferKind.LIVE)
    assert offer.quoted_usd_hour == pytest.approx(0.82112 + DISK_USD_HOUR)
    assert offer.terms.quota == "us-east-1 Standard on demand"
    assert {one.terms.placement_score for one in spot} == {None}  # a score of all sizes together says nothing


def test_a_search_for_gpus_asks_nothing_about_them(place: Ec2) -> None:
    with asking(place.url) as adapter:
        for spot in (False, True):
            answer = adapter.market.search(Query(spot=spot))
            assert answer.offers
            assert NO_GPU not in {offer.gpu for offer in answer.offers}
        launcher_of(adapter).list_instances()
        for_gpus = sent(place)
        adapter.market.search(CPU)
    assert not [one for one in for_gpus if any(name in one for name in CPU_TYPES)]
    assert [one for one in sent(place) if "c7a.4xlarge" in one]


def test_a_machine_is_rented_with_ubuntu_without_a_driver_listed_at_its_price_and_ended(
    place: Ec2, launcher: Launcher
) -> None:
    made = launcher.create(order(C7A))
    request = sent_to(place)
    assert request["InstanceType"] == "c7a.4xlarge"
    assert request["ImageId"].endswith("/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id")
    (listed,) = launcher.list_instances()
    assert (listed.gpu, listed.gpu_count, listed.gpu_memory_gib) == (NO_GPU, 0, None)
    assert listed.listed_usd_hour == pytest.approx(0.82112 + DISK_USD_HOUR)
    launcher.create(order())
    prices = {one.gpu: one.listed_usd_hour for one in launcher.list_instances()}
    assert prices == {NO_GPU: listed.listed_usd_hour, "A10G": pytest.approx(1.006 + DISK_USD_HOUR)}
    launcher.destroy(made.instance_id)


def test_an_image_of_the_owner_is_used_in_place_of_ubuntu() -> None:
    cases: list[Any] = [
        ({"image": IMAGE}, "ubuntu"),
        ({"image": "ami-1"}, "ami-1"),
        ({"image": IMAGE, "images": ("c7a=ami-2",)}, "ami-2"),
    ]
    for options, wanted in cases:
        with case(options):
            assert wanted in image_of(options, "c7a.4xlarge")
    assert "nvidia" in image_of({"image": IMAGE}, "g5.xlarge")


def test_their_vcpus_count_against_the_standard_quota() -> None:
    with Ec2(page=3, clock=NOW.timestamp, account=Ec2Account()) as place:
        place.account.quotas.update({("us-east-1", "L-1216C47A"): 8.0})
        with asking(place.url, key_name=KEY_PAIR, security_groups=(f"us-east-1={SSH_GROUP}",)) as adapter:
            launcher = launcher_of(adapter)
            assert isinstance(launcher, PrerequisiteProbe)
            found = launcher.prerequisites((order(C7A),))
    (one,) = [prerequisite for prerequisite in found if prerequisite.met is False]
    assert (one.name, one.text) == (PrerequisiteName.QUOTA, "the quota is too low: 8 vCPUs, 0 in use, 16 needed")
    assert "L-1216C47A" in one.mend


def test_what_runs_counts_against_the_quota_of_its_family() -> None:
    rows = [{"Instances": [
        {"InstanceType": name, "State": {"Name": "running"}, "CpuOptions": {"CoreCount": 4, "ThreadsPerCore": 2}}
        for name in ("m5.2xlarge", "t3.large", "g5.xlarge", "p4d.24xlarge", "trn1.2xlarge", "c7gn.large")
    ]}]  # fmt: skip
    quota = quota_of(OfferId("us-east-1", "us-east-1a", "c7a.4xlarge", spot=False))
    assert (quota.code, vcpus_in_use(rows, quota)) == ("L-1216C47A", 24)
    assert quota_of(OfferId("us-east-1", "us-east-1a", "c7a.4xlarge", spot=True)).code == "L-34B43A08"


def test_without_an_account_the_price_pages_have_them() -> None:
    with PricePages() as pages, asking(pages.url, None, source="public") as adapter:
        found = adapter.market.search(CPU).offers
        east = [offer for offer in found if offer.region == "us-east-1"]
        assert [(one.offer_id, one.quoted_usd_hour, one.vcpu, one.ram_gib) for one in east] == [
            ("us-east-1/m7i.2xlarge/on-demand", 0.4032, 8, 32), ("us-east-1/c7a.4xlarge/on-demand", 0.82112, 16, 32),
        ]  # fmt: skip
        assert {offer.kind for offer in found} == {OfferKind.LISTED}
        assert len(adapter.market.search(query_of(NO_GPU, spot=True)).offers) == 4
        pages.market = [sold for sold in MARKET if sold.type not in CPU_TYPES]
    with PricePages(market=pages.market) as pages, asking(pages.url, None, source="public") as adapter:
        with pytest.raises(PayloadChanged, match="lists no machine without GPUs"):
            adapter.market.search(CPU)
        assert adapter.market.search(Query()).offers
