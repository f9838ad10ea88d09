"""Words beside a name never hide a card; a card that the catalogue lacks has one name; a slip has none."""

from __future__ import annotations

import pytest

from gpuwatch.domain.history.price_rows import canonical_gpu
from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.watches.watch_fields import named_gpus
from gpuwatch.engine.market.browse import offer_filter
from gpuwatch.errors import UsageError
from gpuwatch.providers.vastai.market import wire_names

# Real cards that the catalogue lacks, as providers spell them, and the name that all spellings share.
UNLISTED = [
    ("NVIDIA H800", 80, "H800"),
    ("H800 80GB", 80, "H800"),
    ("H800-SXM5-80GB", 80, "H800 SXM"),
    ("HGX H800", 80, "H800 SXM"),
    ("NVIDIA H800 PCIe", 80, "H800 PCIe"),
    ("NVIDIA GeForce RTX 5090 D", 32, "RTX 5090 D"),
    ("RTX 5090D", 32, "RTX 5090 D"),
    ("geforcertx5090d-pcie-32gb", 32, "RTX 5090 D"),
    ("NVIDIA GeForce RTX 5090 D v2", 24, "RTX 5090 D v2"),
    ("NVIDIA RTX PRO 2000 Blackwell", 16, "RTX PRO 2000"),
    ("RTX PRO 2000", 16, "RTX PRO 2000"),
    ("RTXPRO2000", 16, "RTX PRO 2000"),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", 16, "RTX 4090 Laptop"),
    ("RTX 3080 Max-Q", 8, "RTX 3080 Max-Q"),
    ("RTX 4090 Mobile", 16, "RTX 4090 Mobile"),
    ("NVIDIA L20", 48, "L20"),
    ("A800-SXM4-80GB", 80, "A800 SXM"),
    ("RTX 3080 20GB", 20, "RTX 3080 20GB"),
    ("H20 141GB", 141, "H20 141GB"),
    ("AMD Instinct MI308X", 192, "MI308X"),
    ("RTX PRO 6000D", 84, "RTX PRO 6000 D"),
    ("H100 CNX", 80, "H100 CNX"),
    ("NVIDIA RTX PRO 5000 72GB Blackwell", 72, "RTX PRO 5000 72GB"),
    ("Tesla P100-PCIE-12GB", 12, "P100 PCIe 12GB"),
    ("Vera Rubin VR200 NVL144", 288, "Vera Rubin VR200 NVL144"),  # of no known series: kept as it is
    ("VR200 NVL144", 288, "VR200"),
]
SLIPS = [
    "H10O",
    "H1OO",
    "RTX 409O",
    "RTX 4900",
    "H1000",
    "H1000x",
    "H100 SXN",
    "A100 SXN",
    "RTXX 4090",
    "RTX 4090 Latop",
]
NO_CARDS = [
    "",
    "foo",
    "80GB",
    "NVIDIA",
    "6000",
    "GPU",
    "ZZZ9",
    "Q100",
    "1g.10gb",
    "A100 MIG 1g.10gb",
    "cpunode",
    "H800: night",
    "\x00",
]


@pytest.mark.parametrize(
    ("spelling", "memory_gib", "name"),
    [
        ("NVIDIA RTX PRO 4500 Blackwell Server Edition", 32, "RTX PRO 4500"),
        ("NVIDIA RTX PRO 4000 Blackwell Server Edition", 24, "RTX PRO 4000"),
        ("RTX PRO 4500 SE", 32, "RTX PRO 4500"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, "RTX PRO 6000 Server"),
        ("RTX PRO 6000 Blackwell Workstation", 96, "RTX PRO 6000 Workstation"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 96, "RTX PRO 6000 Max-Q"),
        ("HGX H100", 80, "H100 SXM"),
        ("NVIDIA HGX B200", 180, "B200 SXM"),
        ("DGX H200", 141, "H200 SXM"),
        ("GB200 NVL72", 186, "GB200"),
        ("NVIDIA GB300 NVL72", 288, "GB300"),
        ("H100 SXM5 80GB HBM3", 80, "H100 SXM"),
        ("NVIDIA H100 PCIe 80GB HBM2e", 80, "H100 PCIe"),
        ("NVIDIA A10 Tensor Core GPU", 24, "A10"),
        ("NVIDIA GH200 Grace Hopper Superchip", 96, "GH200 96GB"),
        ("NVIDIA B200 Blackwell", 180, "B200 SXM"),
        ("GeForce RTX 3090 Founders Edition", 24, "RTX 3090"),
        ("NVIDIA A100 80GB PCIe LC", 80, "A100 PCIe 80GB"),
        ("RTX 4000 SFF Ada Generation", 20, "RTX 4000 SFF Ada"),
        ("A800", 80, "A800 PCIe 80GB"),
    ],
)
def test_words_beside_the_name_never_hide_a_catalogued_card(spelling: str, memory_gib: float, name: str) -> None:
    found = catalog().resolve(spelling, memory_gib)
    assert (found.name, found.known, found.certain) == (name, True, True)
    assert name in catalog().wanted(spelling)


def test_a_named_architecture_keeps_out_the_cards_of_others() -> None:
    assert catalog().resolve("RTX 6000 Blackwell").name == "RTX PRO 6000"
    assert not catalog().resolve("H100 Blackwell").known


@pytest.mark.parametrize(("spelling", "memory_gib", "name"), UNLISTED)
def test_a_card_that_the_catalogue_lacks_has_one_name_live_and_imported(
    spelling: str, memory_gib: float, name: str
) -> None:
    found = catalog().resolve(spelling, memory_gib)
    assert (found.name, found.known) == (name, False)
    assert catalog().resolve(name, memory_gib) == found
    assert canonical_gpu(spelling, memory_gib) == (name, found.family)


@pytest.mark.parametrize("spelling", [spelling for spelling, _, name in UNLISTED if "Vera" not in name])
def test_such_a_card_can_be_watched_searched_and_asked_for(spelling: str) -> None:
    name = catalog().resolve(spelling).name
    assert name in named_gpus([spelling])
    assert name in named_gpus([name])
    assert name in offer_filter([spelling]).gpu_names
    assert name in wire_names((name,))


def test_without_a_socket_it_means_a_card_with_any() -> None:
    assert named_gpus(["H800"]) == ("H800", "H800 SXM", "H800 PCIe")
    assert named_gpus(["H800 SXM5"]) == ("H800 SXM",)
    assert named_gpus(["NVIDIA RTX 5090D"]) == ("RTX 5090 D",)


@pytest.mark.parametrize(
    ("text", "other"),
    [("RTX 5090", "RTX 5090 D"), ("H100", "H800"), ("RTX 4090", "RTX 4090 Laptop"),
     ("RTX PRO 5000", "RTX PRO 5000 72GB"), ("RTX PRO 6000", "RTX PRO 6000 D"),
     ("H100", "H100 CNX"), ("RTX 3080", "RTX 3080 Max-Q"), ("H20", "H20 141GB")],
)  # fmt: skip
def test_a_watch_on_a_card_does_not_take_one_that_only_resembles_it(text: str, other: str) -> None:
    assert catalog().resolve(other).name not in named_gpus([text])
    assert not set(named_gpus([other])) & set(named_gpus([text]))


@pytest.mark.parametrize("text", [*SLIPS, *NO_CARDS])
def test_a_slip_and_what_is_no_card_stand_for_nothing(text: str) -> None:
    assert catalog().unlisted(text) == ()
    with pytest.raises(ValueError, match="unknown GPU"):
        named_gpus([text])
    with pytest.raises(UsageError, match="no GPU is called"):
        offer_filter([text])


@pytest.mark.parametrize(
    ("spelling", "socket", "memory_gib", "name"),
    [
        ("H100_sxm5", "pcie", 80, "H100"),
        ("H100 PCIe", "SXM5", 80, "H100"),
        ("HGX H100", "PCIe", 80, "H100"),
        ("A100 SXM4 80GB", "pcie", 80, "A100 80GB"),
        ("V100_SXM2", "PCIe", 32, "V100 32GB"),
    ],
)
def test_a_socket_that_contradicts_the_name_leaves_the_card_open(
    spelling: str, socket: str, memory_gib: float, name: str
) -> None:
    found = catalog().resolve(spelling, memory_gib, socket)
    assert (found.name, found.certain) == (name, False)
    assert "contradicts its socket" in (found.reason or "")
    assert name in catalog().wanted(found.family)
    assert not any(name in catalog().wanted(candidate) for candidate in found.candidates)


@pytest.mark.parametrize(
    ("spelling", "socket", "memory_gib", "name"),
    [
        ("H100_nvl", "pcie", 94, "H100 NVL"),  # an NVL card is a PCIe card
        ("H100 SXM5", "nvl", 94, "H100 NVL"),  # two of three facts
        ("H200_sxm5", "pcie", 141, "H200 SXM"),  # no common name in the catalogue: the name decides
        ("L40S", "sxm4", 48, "L40S"),
        ("H100_80GB", "SXM5", 80, "H100 SXM"),
    ],
)
def test_a_socket_that_does_not_contradict_decides(spelling: str, socket: str, memory_gib: float, name: str) -> None:
    found = catalog().resolve(spelling, memory_gib, socket)
    assert (found.name, found.certain) == (name, True)
