"""The search side, with an EC2 on loopback."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from gpuwatch import providers
from gpuwatch.domain.market.offer import OfferKind
from gpuwatch.errors import KeyRejected, PayloadChanged, ProviderDown, ProviderError, RateLimited
from gpuwatch.installation import install_hint
from gpuwatch.ports import Answer, Completeness, Query
from gpuwatch.redaction import redact
from tests.clocks import Clock
from tests.clouds.aws import Ec2
from tests.clouds.aws_market import CPU_TYPES, MARKET, Sold
from tests.providers.aws.aws_bench import BOTH, KEY, NOW, asking

NEW = Sold("us-east-1", "us-east-1a", "use1-az4", "p9.48xlarge", "40.0", "12.0", "13.0", 192, "2048 GiB")
NEW_TYPE = {
    "instanceType": "p9.48xlarge",
    "processorInfo": {"supportedArchitectures": ["x86_64"]},
    "gpuInfo": {"gpus": [{"name": "H200", "count": 8, "memoryInfo": {"sizeInMiB": 144_384}, "gpuPartitionSize": 1.0}]},
}


@pytest.fixture
def place() -> Iterator[Ec2]:
    with Ec2(page=7) as place:
        yield place


@pytest.fixture
def adapter(place: Ec2) -> Iterator[providers.Adapter]:
    with asking(place.url) as adapter:
        yield adapter


def _ids(answer: Answer) -> set[str]:
    return {offer.offer_id for offer in answer.offers}


# --- offers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spot", [False, True])
def test_every_type_in_every_zone_is_an_offer_whatever_the_pages(adapter: providers.Adapter, spot: bool) -> None:
    word = "spot" if spot else "on-demand"
    expected = {
        f"{s.region}/{s.zone}/{s.type}/{word}" for s in MARKET if s.type not in CPU_TYPES and (s.spot or not spot)
    }
    answer = adapter.market.search(Query(spot=spot))
    assert _ids(answer) == expected
    assert (answer.completeness, answer.skipped, answer.searches) == (Completeness.COMPLETE, {}, 2)


def test_an_on_demand_offer_is_reported_as_it_is(adapter: providers.Adapter) -> None:
    [offer] = [
        o for o in adapter.market.search(Query(gpus=("H100 SXM",), count_min=8)).offers if o.region == "us-east-1"
    ]
    assert (offer.gpu, offer.gpu_count, offer.gpu_memory_gib, offer.spot) == ("H100 SXM", 8, 80.0, False)
    assert offer.quoted_usd_hour == pytest.approx(55.04 + 100 * 0.08 / 720)
    assert (offer.quoted_disk_gb, offer.disk_usd_gb_month) == (100.0, 0.08)
    assert (offer.vcpu, offer.ram_gib, offer.cpu_arch, offer.country) == (192.0, 2048.0, "x86_64", "US")
    assert (offer.machine_id, offer.kind) == ("use1-az4/p5.48xlarge", OfferKind.LIVE)
    assert (offer.terms.instance_type, offer.terms.interconnect) == ("p5.48xlarge", "NVLink")
    assert offer.terms.fungible
    assert offer.min_bid_usd_hour is None


def test_a_spot_offer_has_the_price_in_force_and_not_the_one_before(adapter: providers.Adapter) -> None:
    offers = adapter.market.search(Query(gpus=("A10G",), spot=True)).offers
    assert {offer.machine_id: offer.min_bid_usd_hour for offer in offers} == {
        "use1-az4/g5.xlarge": 0.4012, "use1-az6/g5.xlarge": 0.409224, "usw2-az2/g5.xlarge": 0.44132,
    }  # fmt: skip
    assert all(o.quoted_usd_hour == pytest.approx((o.min_bid_usd_hour or 0) + 100 * 0.08 / 720) for o in offers)


def test_what_is_not_sold_as_spot_is_no_spot_offer(adapter: providers.Adapter) -> None:
    assert {o.gpu_count for o in adapter.market.search(Query(gpus=("H100 SXM",), spot=True)).offers} == {8}
    assert {o.gpu_count for o in adapter.market.search(Query(gpus=("H100 SXM",))).offers} == {1, 8}


def test_a_slice_is_no_gpu_and_an_arm_machine_is_one(adapter: providers.Adapter) -> None:
    fractions = {o.terms.instance_type: o.terms.gpu_fraction for o in adapter.market.search(Query(gpus=("L4",))).offers}
    assert fractions == {"g6.xlarge": 1.0, "g6f.xlarge": 0.125}
    assert {o.cpu_arch for o in adapter.market.search(Query(gpus=("T4G",))).offers} == {"arm64"}


def test_a_type_that_is_new_is_asked_about_priced_and_reported(place: Ec2) -> None:
    place.market.append(NEW)
    place.types.append(NEW_TYPE)
    with asking(place.url) as adapter:
        for spot, usd in ((False, 40.0), (True, 12.0)):
            answer = adapter.market.search(Query(gpus=("H200 SXM",), spot=spot))
            [offer] = answer.offers
            assert offer.quoted_usd_hour == pytest.approx(usd + 100 * 0.08 / 720)
            assert offer.gpu_count == 8
            assert list(answer.drift) == ["new instance type: p9.48xlarge"]
    assert place.count("POST /DescribeInstanceTypes$") == 1


def test_a_new_type_without_a_gpu_is_no_offer(place: Ec2) -> None:
    place.market.append(NEW._replace(type="p99.large"))
    place.types.append({"instanceType": "p99.large"})
    with asking(place.url) as adapter:
        assert all(o.terms.instance_type != "p99.large" for o in adapter.market.search(Query()).offers)


def test_a_type_without_a_list_price_is_counted(place: Ec2) -> None:
    place.market.append(NEW._replace(type="g6e.48xlarge", on_demand="0.0000000000"))
    with asking(place.url) as adapter:
        answer = adapter.market.search(Query(gpus=("L40S",)))
    assert {o.terms.instance_type for o in answer.offers} == {"g6e.12xlarge"}
    assert answer.skipped["an instance type without a list price"] == 1


def test_a_gpu_that_aws_does_not_have_costs_one_question_a_region(place: Ec2, adapter: providers.Adapter) -> None:
    answer = adapter.market.search(Query(gpus=("RTX 4090",)))
    assert (answer.offers, answer.completeness) == ([], Completeness.COMPLETE)
    assert {request.path for request in place.requests} == {"/DescribeInstanceTypeOfferings"}


def test_only_types_that_are_wanted_are_asked_for(place: Ec2, adapter: providers.Adapter) -> None:
    adapter.market.search(Query(gpus=("A10G",), spot=True))
    asked = [request.params for request in place.requests if request.path == "/DescribeSpotPriceHistory"]
    assert {value for one in asked for name, value in one.items() if name.startswith("InstanceType.")} == {"g5.xlarge"}
    assert {one["StartTime"] for one in asked} == {"2026-11-21T12:00:00Z"}


def test_list_prices_are_kept_for_hours_and_what_is_offered_is_asked_each_time(place: Ec2) -> None:
    clock = Clock()
    with asking(place.url, clock=clock) as adapter:
        adapter.market.search(Query())
        once = place.count("GetProducts")
        place.market = [sold for sold in place.market if sold.type != "g5.xlarge"]
        clock.seconds += 3600
        answer = adapter.market.search(Query(gpus=("A10G",)))
        assert (list(answer.offers), place.count("GetProducts")) == ([], once)
        clock.seconds += 24 * 3600
        adapter.market.search(Query())
        assert place.count("GetProducts") > once


# --- failures ---------------------------------------------------------------------------------------------------------


def test_a_region_that_does_not_answer_makes_the_answer_partial(place: Ec2) -> None:
    with asking(place.url, regions=("us-east-1", "us-west-2", "mars-north-1")) as adapter:
        answer = adapter.market.search(Query(gpus=("A10G",)))
    assert answer.completeness is Completeness.PARTIAL
    assert len(answer.offers) == 3
    assert answer.skipped == {"region mars-north-1: not understood": 1}


def test_no_region_is_an_error_and_never_no_offers(place: Ec2) -> None:
    with asking(place.url, regions=("mars-north-1",)) as adapter, pytest.raises(PayloadChanged, match="mars-north-1"):
        adapter.market.search(Query())


def _xml(code: str, message: str = "no") -> bytes:
    return (
        f"<?xml version='1.0'?><Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        "</Errors><RequestID>0</RequestID></Response>"
    ).encode()


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (503, "RequestLimitExceeded", RateLimited),
        (400, "Throttling", RateLimited),
        (401, "AuthFailure", KeyRejected),
        (403, "UnauthorizedOperation", KeyRejected),
        (400, "RequestExpired", KeyRejected),
        (400, "OptInRequired", KeyRejected),
        (500, "InternalError", ProviderDown),
        (503, "Unavailable", ProviderDown),
        (400, "InvalidParameterValue", PayloadChanged),
        (400, "InvalidAction", PayloadChanged),
    ],
)
def test_every_code_of_aws_has_its_own_error(place: Ec2, status: int, code: str, error: type[ProviderError]) -> None:
    place.fail("DescribeInstanceTypeOfferings", status, _xml(code, "words\x1b[31m of AWS"), times=10)
    with asking(place.url, regions=("us-east-1",)) as adapter, pytest.raises(error) as caught:
        adapter.market.search(Query())
    assert type(caught.value) is error
    assert str(caught.value).startswith("aws: us-east-1: ")
    assert "\x1b" not in str(caught.value)


def test_what_passes_is_asked_again(place: Ec2) -> None:
    place.fail("DescribeInstanceTypeOfferings", 500, _xml("InternalError"), times=2)
    with asking(place.url, regions=("us-east-1",)) as adapter:
        assert adapter.market.search(Query()).completeness is Completeness.COMPLETE


def test_a_page_in_the_middle_that_fails_is_not_left_out(place: Ec2) -> None:
    with asking(place.url, regions=("us-east-1",)) as adapter:
        place.fail("DescribeSpotPriceHistory", 400, _xml("InvalidParameterValue"))
        with pytest.raises(ProviderError):
            adapter.market.search(Query(spot=True))


def test_pages_that_repeat_come_to_an_end(place: Ec2) -> None:
    page = "<item><instanceType>g5.xlarge</instanceType><location>us-east-1a</location></item>"
    body = f"<R><instanceTypeOfferingSet>{page}</instanceTypeOfferingSet><nextToken>again</nextToken></R>"
    place.fail("DescribeInstanceTypeOfferings", 200, body.encode(), times=10)
    with asking(place.url, regions=("us-east-1",)) as adapter, pytest.raises(PayloadChanged, match="do not end"):
        adapter.market.search(Query())
    assert place.count("DescribeInstanceTypeOfferings") == 2


@pytest.mark.parametrize(
    "body",
    [
        b"<R><spotPriceHistorySet><item/></spotPriceHistorySet></R>",
        b"<R><spotPriceHistorySet><item><spotPrice>-1</spotPrice></item></spotPriceHistorySet></R>",
    ],
)
def test_spot_prices_of_which_none_makes_sense_are_no_answer(place: Ec2, body: bytes) -> None:
    place.fail("DescribeSpotPriceHistory", 200, body)
    with asking(place.url, regions=("us-east-1",)) as adapter, pytest.raises(PayloadChanged, match="none of 1 spot"):
        adapter.market.search(Query(spot=True))


def test_no_spot_price_is_no_spot_offer(place: Ec2) -> None:
    place.fail("DescribeSpotPriceHistory", 200, b"<R><spotPriceHistorySet/></R>")
    with asking(place.url, regions=("us-east-1",)) as adapter:
        assert list(adapter.market.search(Query(spot=True)).offers) == []


@pytest.mark.parametrize(
    "body",
    [
        b"<R><item>",
        b"<R/>",
        b"<R><spotPriceHistorySet><item><timestamp>yesterday</timestamp></item></spotPriceHistorySet></R>",
        b"<a>" * 50_000,
        b'<!DOCTYPE a [<!ENTITY b "c"><!ENTITY d "&b;&b;">]><a>&d;</a>',
    ],
)
def test_xml_that_is_none_of_ec2s_is_an_error(place: Ec2, body: bytes) -> None:
    place.fail("DescribeSpotPriceHistory", 200, body, times=10)
    with asking(place.url, regions=("us-east-1",)) as adapter, pytest.raises(PayloadChanged):
        adapter.market.search(Query(spot=True))


def test_without_the_right_to_list_prices_spot_prices_are_true_all_the_same(place: Ec2) -> None:
    denied = {"__type": "AccessDeniedException", "message": "not authorized to perform: pricing:GetProducts"}
    place.fail("GetProducts", 400, denied, times=10)
    with asking(place.url, regions=("us-east-1",)) as adapter:
        offers = adapter.market.search(Query(gpus=("A10G",), spot=True)).offers
        assert [o.quoted_usd_hour for o in offers] == [0.4012, 0.409224]
        assert {(o.quoted_disk_gb, o.disk_usd_gb_month, o.vcpu) for o in offers} == {(0.0, None, None)}
        assert all("not included" in (o.terms.note or "") for o in offers)
        with pytest.raises(KeyRejected, match="pricing:GetProducts"):
            adapter.market.search(Query(gpus=("A10G",)))


def test_a_stop_ends_the_wait_for_regions(place: Ec2) -> None:
    stop = Event()
    place.fail("DescribeInstanceTypeOfferings", 500, _xml("InternalError"), times=4, delay_s=2.0)
    stop.set()
    with asking(place.url, stop=stop) as adapter, pytest.raises(ProviderDown, match="stopping"):
        adapter.market.search(Query())


# --- credentials ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["someone-else:demo-secret", "demo-key"])
def test_a_wrong_key_is_reported(place: Ec2, key: str) -> None:
    with asking(place.url, key) as adapter, pytest.raises(KeyRejected) as caught:
        adapter.market.search(Query())
    assert key not in str(caught.value)


@pytest.fixture
def chain(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> pytest.MonkeyPatch:
    """An empty chain of credentials that queries no other machine."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def test_what_the_credential_chain_holds_is_blanked_out_like_a_key(place: Ec2, chain: pytest.MonkeyPatch) -> None:
    chain.setenv("AWS_ACCESS_KEY_ID", "demo-key")
    chain.setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-chain-4711")
    with asking(place.url, None) as adapter:
        adapter.market.search(Query())
    assert "4711" not in redact("Message: secret-of-the-chain-4711 is wrong")


def test_without_a_key_the_credential_chain_is_used(place: Ec2, chain: pytest.MonkeyPatch) -> None:
    chain.setenv("AWS_ACCESS_KEY_ID", "demo-key")
    chain.setenv("AWS_SECRET_ACCESS_KEY", "demo-secret")
    with asking(place.url, None) as adapter:
        assert adapter.market.search(Query()).completeness is Completeness.COMPLETE


def test_a_profile_of_the_chain_is_used(place: Ec2, chain: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "credentials").write_text("[mine]\naws_access_key_id=demo-key\naws_secret_access_key=demo-secret\n")
    with asking(place.url, None, profile="mine") as adapter:
        assert adapter.market.search(Query()).completeness is Completeness.COMPLETE
    with asking(place.url, None, profile="other") as adapter, pytest.raises(KeyRejected, match="other"):
        adapter.market.search(Query())


@pytest.mark.usefixtures("chain")
def test_a_chain_without_credentials_is_reported_and_nothing_is_sent(place: Ec2) -> None:
    with asking(place.url, None) as adapter, pytest.raises(KeyRejected, match="credential chain"):
        adapter.market.search(Query())
    assert place.requests == []


def test_nothing_of_a_request_is_logged_at_any_level(place: Ec2, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with asking(place.url, regions=("us-east-1",)) as adapter:
        adapter.market.search(Query())
    assert "demo-" not in caplog.text
    assert not [record for record in caplog.records if record.name.startswith(("boto", "urllib3"))]


def test_without_boto3_one_line_names_the_extra(place: Ec2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with asking(place.url) as adapter:
        with pytest.raises(ProviderError, match=re.escape(install_hint("aws"))) as caught:
            adapter.market.search(Query())
        assert adapter.launcher is not None
        assert "\n" not in str(caught.value)


def test_the_adapter_is_built_without_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boto3", "boto3.session", "botocore", "botocore.config", "botocore.session"):
        monkeypatch.setitem(sys.modules, name, None)
    with asking("http://127.0.0.1:1") as adapter:
        assert adapter.name == "aws"
        assert adapter.info.extra == "aws"


def test_the_observation_is_of_now_and_both_regions_are_asked(place: Ec2, adapter: providers.Adapter) -> None:
    answer = adapter.market.search(Query(gpus=("A10G",)))
    assert answer.observed_at == NOW
    assert {offer.region for offer in answer.offers} == set(BOTH)
    assert KEY not in repr(adapter)
