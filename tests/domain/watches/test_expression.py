"""Conditions as text: their meaning, when they are unknown, and the errors of wrong ones."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuwatch.domain.market.money import Commission, OfferPrice, price_of
from gpuwatch.domain.market.offer import Offer, OfferTerms, Verification
from gpuwatch.domain.watches.expression import FACTS, LONGEST, holds, names_of, parse, why_not
from gpuwatch.domain.watches.match import failures
from tests.builders import NOON, a_watch, an_offer


def priced(**changes: Any) -> tuple[Offer, OfferPrice]:
    """An H100 at 3.00 listed, 3.60 with commission."""
    offer = an_offer(**changes)
    return offer, price_of(offer, None, Commission("0.20"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu_ram >= 80", True),  # it reports 79.6, and is sold as 80
        ("gpu_ram > 80", False),
        ("80 <= gpu_ram", True),
        ("gpu_price <= 3.60", True),
        ("gpu_price <= 3.599999", False),
        ("gpu_price < 3.6", False),
        ("price == 3.6", True),
        ("gpu == 'h100'", True),
        ('gpu == "H100 SXM"', True),
        ("gpu != 'H100'", False),
        ("gpu in ('A100', 'H100 SXM')", True),
        ("gpu_count in (2, 4)", False),
        ("nvlink", None),
        ("not nvlink", None),
        ("nvlink or gpu_count == 1", True),
        ("nvlink and gpu_count == 1", None),
        ("nvlink and gpu_count == 2", False),
        ("not spot", True),
        ("not (spot or gpu_count == 1)", False),
        ("gpu_count == 1 or gpu_count == 2 and spot", True),
        ("verified", True),
        ("tflops > 900", True),
        ("gpu_bw == 3350 and cuda_cores >= 16896 and clock > 1900 and watts <= 700", True),
        ("ecc and datacenter_card", True),
        ("disk_bw >= 100", None),
        ("inter_node_gbps > 100", None),
        ("interconnect == 'nvlink'", None),
        ("gpu == 'h100_sxm5'", True),  # a spelling of a provider, as in `gpu`
        ("gpu in ('A100', 'NVIDIA H100 80GB HBM3')", True),
        ("gpu == 'H100 PCIe'", False),
        ("gpu != 'H100 SXM5'", False),
        ("verified == true", True),
        ("false == spot", True),
        ("spot != false", False),
        ("nvlink == false", None),
        ("nvlink != true", None),
        ("gpu_count not in (2, 4)", True),
        ("gpu_count NOT IN (1, 2)", False),
        ("verified AND NOT spot", True),
    ],
)
def test_a_condition_is_true_false_or_unknown(text: str, expected: bool | None) -> None:
    offer, price = priced(
        gpu="H100 SXM", gpu_family="H100", gpu_memory_gib=79.6, nvlink_gbps=None, verification=Verification.VERIFIED
    )
    assert holds(parse(text), offer, price) is expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu_rm >= 80", "at character 1: unknown name gpu_rm; did you mean gpu_ram? There are gpu, gpu_count,"),
        ("vram >= 80", "at character 1: unknown name vram; did you mean gpu_ram?"),
        ("max_price < 2", "at character 1: unknown name max_price; did you mean gpu_price?"),
        ("gpus > 1", "at character 1: unknown name gpus; did you mean gpu_count?"),
        ("count > 1", "at character 1: unknown name count; did you mean gpu_count?"),
        ("disk_bandwidth > 500", "at character 1: unknown name disk_bandwidth; did you mean disk_bw?"),
        ("network_gbps > 100", "at character 1: unknown name network_gbps; did you mean inter_node_gbps?"),
        ("boost_clock > 2000", "at character 1: unknown name boost_clock; did you mean clock?"),
        ("mem_bw > 900", "at character 1: unknown name mem_bw; did you mean gpu_bw?"),
        ("reputation > 0.9", "at character 1: unknown name reputation. There are gpu,"),
        ("gpu_ram >= '80'", "at character 12: gpu_ram is a number (GiB per GPU, as advertised)"),
        ("gpu > 'H100'", "at character 7: gpu is a text: expected ==, != or in"),
        ("gpu_ram", "at character 1: gpu_ram is a number"),
        ("nvlink == 1", "at character 11: nvlink is a yes or no"),
        ("nvlink >= true", "at character 11: nvlink is a yes or no: expected nvlink or not nvlink"),
        ("gpu_ram >= true", "at character 12: gpu_ram is a number"),
        ("spot in (true)", "at character 1: spot is a yes or no: expected spot or not spot"),
        ("country not 'DE'", "at character 13: expected in"),
        ("country in ['DE', 'NL']", "at character 12: '[' is not understood; expected ("),
        ("country == DE", "at character 12: expected a number, a text in quotation marks, true or false"),
        ("gpu_ram = 80", "at character 9: '=' is not understood; expected =="),
        ("nvlink && spot", "at character 8: '&' is not understood; expected and"),
        ("nvlink || spot", "at character 8: '|' is not understood; expected or"),
        ("!nvlink", "at character 1: '!' is not understood; expected not"),
        ("GPU_RAM >= 80", "at character 1: unknown name GPU_RAM; did you mean gpu_ram?"),
        ("gpu_ram >=", "at character 11: expected a number or a text, not the end"),
        ("(nvlink", "at character 8: expected )"),
        ("nvlink nvlink", "at character 8: expected and, or, or the end"),
        ("24 <= gpu_ram <= 80", "at character 15: expected and, or, or the end"),
        ("gpu_ram >= 80; rm", "at character 14: ';' is not understood"),
        ("__import__('os')", "at character 1: unknown name __import__"),
        ("", "at character 1: expected a name, a value, not or (, not the end"),
        ("or", "at character 1: expected a name"),
        ("(" * 30 + "nvlink" + ")" * 30, "expected at most 20 levels"),
        ("not " * 30 + "nvlink", "expected at most 20 levels"),
        ("nvlink or " * 60 + "nvlink", f"expected at most {LONGEST} characters"),
    ],
)
def test_a_wrong_condition_is_reported_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=r".*") as raised:
        parse(text)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gpu_ram >= 80 and verified", "gpu_ram is 24, not >= 80; verified is unknown"),
        ("nvlink or gpu_count == 2", "nvlink is unknown, and gpu_count is 1, not == 2"),
        ("not (gpu_count == 1 and not spot)", "gpu_count == 1 and (not (spot)) is true, but must not be"),
        ("country in ('DE', 'NL')", 'country is US, not in ("DE", "NL")'),
    ],
)
def test_what_does_not_hold_is_explained_by_what_decides(text: str, reason: str) -> None:
    offer, price = priced(gpu="RTX 4090", gpu_memory_gib=24.0, nvlink_gbps=None, verification=None, country="US")
    assert why_not(parse(text), offer, price) == reason


@pytest.mark.parametrize(
    ("region", "country", "text", "expected"),
    [
        ("eu-central-1", None, "country == 'DE'", True),
        (None, "DE", "country == 'germany'", True),
        (None, "DE", "country in ('US', 'EU')", True),
        (None, "DE", "country != 'EU'", False),
        (None, "US", "country == 'EU'", False),
        ("somewhere", None, "country != 'EU'", None),
    ],
)
def test_a_country_is_understood_as_in_regions(
    region: str | None, country: str | None, text: str, expected: bool | None
) -> None:
    offer, price = priced(region=region, country=country)
    assert holds(parse(text), offer, price) is expected


def test_every_name_can_be_read_and_says_what_it_is() -> None:
    offer, price = priced()
    for name, fact in FACTS.items():
        text = {"number": f"{name} >= 0", "text": f"{name} == 'x'", "yes or no": name}[fact.kind]
        assert list(names_of(parse(text))) == [name]
        assert holds(parse(text), offer, price) in {True, False, None}
        assert fact.unit


def test_the_zone_and_the_payment_of_an_offer_are_conditions() -> None:
    for terms, here, prepaid in (
        (OfferTerms(zone="us-east-1a", prepaid=True), True, True),
        (OfferTerms(zone="us-east-1b"), False, False),
        (OfferTerms(), None, False),
    ):
        offer, price = priced(terms=terms)
        assert holds(parse("zone == 'us-east-1a'"), offer, price) is here
        assert holds(parse("prepaid"), offer, price) is prepaid


def test_a_watch_takes_what_its_condition_takes() -> None:
    offer, price = priced(gpu_count=1)
    assert failures(a_watch(when="gpu_count == 1"), offer, price, NOON) == ()
    (failure,) = failures(a_watch(when="gpu_count == 2", any_of=("spot",)), offer, price, NOON)
    assert (failure.clause, failure.text) == ("when", "when: gpu_count is 1, not == 2")
    assert failures(a_watch(any_of=("gpu_count == 2", "not spot")), offer, price, NOON) == ()
    (failure,) = failures(a_watch(any_of=("gpu_count == 2", "spot")), offer, price, NOON)
    assert failure.text == "any: gpu_count is 1, not == 2, and spot is false"


_LEAVES = {"gpu_count == 1": True, "gpu_count > 4": False, "spot": False, "nvlink": None, "datacenter": True}
_TREES = st.recursive(
    st.sampled_from(list(_LEAVES.items())),
    lambda inner: st.one_of(
        inner.map(lambda one: (f"not ({one[0]})", None if one[1] is None else not one[1])),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}) and ({two[1][0]})", _both(two[0][1], two[1][1]))),
        st.tuples(inner, inner).map(lambda two: (f"({two[0][0]}) or ({two[1][0]})", _either(two[0][1], two[1][1]))),
    ),
    max_leaves=8,
)


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if False in {one, other} else None if None in {one, other} else True


def _either(one: bool | None, other: bool | None) -> bool | None:
    return True if True in {one, other} else None if None in {one, other} else False


@given(_TREES)
def test_it_means_what_an_interpreter_by_hand_says(tree: tuple[str, bool | None]) -> None:
    text, expected = tree
    assume(len(text) <= LONGEST)
    offer, price = priced(gpu_count=1, spot=False, nvlink_gbps=None, datacenter=True)
    condition = parse(text)
    assert holds(condition, offer, price) is expected
    if expected is not True:
        assert why_not(condition, offer, price)


@given(st.text(max_size=60))
def test_any_text_is_a_condition_or_one_line_of_error(text: str) -> None:
    with suppress(ValueError):
        assert list(names_of(parse(text)))


@given(st.decimals("0.000001", "400", places=6), st.integers(1, 16))
def test_a_price_at_the_figure_holds(listed: Decimal, count: int) -> None:
    """At or under it, like max_price."""
    offer, price = priced(gpu_count=count, quoted_usd_hour=float(listed))
    figure = Decimal(price.price_microusd_hour) / 1_000_000
    assert holds(parse(f"price <= {figure:f}"), offer, price) is True
    assert holds(parse(f"price < {figure:f}"), offer, price) is False


def test_a_link_is_compared_in_any_of_its_spellings() -> None:
    for stated, wanted in (
        ("SXM5", "sxm"),
        ("NVLink", "SXM"),
        ("Infinity Fabric", "xGMI"),
        ("XGMI", "infinity fabric"),
    ):
        offer, price = priced(gpu="H100 SXM", gpu_count=8, terms=OfferTerms(interconnect=stated))
        assert holds(parse(f"interconnect == '{wanted}'"), offer, price) is True
        assert holds(parse(f"interconnect != '{wanted}'"), offer, price) is False
        assert holds(parse("interconnect == 'PCIe'"), offer, price) is False
