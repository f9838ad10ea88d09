"""GPU names: any spelling becomes one canonical name, and an owner's text becomes names."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.domain.market.gpu_names import MAX_NAME_LENGTH, CatalogGpu, GpuCatalog, GpuName, catalog, clean_name, fold
from tests.checkout import TESTS

RECORDED = TESTS / "recorded" / "vastai" / "gpu_names.json"
MARKET_NAMES: list[str] = json.loads(RECORDED.read_text(encoding="utf-8"))["names"]
KNOWINGLY_UNKNOWN = frozenset({"RTX 4090 Ti", "RTX 5090 Ti"})  # on vast.ai's own list, though never sold; searchable


def _name(spelling: str, mib: int | None = None) -> str:
    found = catalog().resolve(spelling, None if mib is None else mib / 1024)
    assert found.known
    return found.name


@pytest.mark.parametrize("name", MARKET_NAMES)
def test_every_name_on_the_marketplaces_list_is_known_or_knowingly_unknown(name: str) -> None:
    found = catalog().resolve(name)
    assert found.known is (name not in KNOWINGLY_UNKNOWN)
    if not found.known:
        assert found == GpuName(name, name, False)


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("A10g", "A10G"),
        ("A100 PCIE", "A100 PCIe"),  # 40 or 80 GB: its memory is not reported here
        ("B200", "B200 SXM"),
        ("GH200 SXM", "GH200 96GB"),
        ("H200", "H200 SXM"),
        ("Tesla T4", "T4"),
        ("RTX 4070S Ti", "RTX 4070 Ti SUPER"),
        ("RTX 4080S", "RTX 4080 SUPER"),
        ("RTX 4090D", "RTX 4090 D"),
        ("RTX 6000Ada", "RTX 6000 Ada"),
        ("Q RTX 8000", "Quadro RTX 8000"),
        ("RTX PRO 6000 WS", "RTX PRO 6000 Workstation"),
        ("InstinctMI250X", "MI250X"),
    ],
)
def test_the_marketplaces_spellings_mean_these_gpus(spelling: str, name: str) -> None:
    assert _name(spelling) == name


@pytest.mark.parametrize(
    ("spelling", "mib", "name"),
    [
        ("A100 SXM4", 40960, "A100 SXM 40GB"),
        ("A100 SXM4", 81920, "A100 SXM 80GB"),
        ("A100 PCIE", 40960, "A100 PCIe 40GB"),
        ("A100 PCIE", 81920, "A100 PCIe 80GB"),
        ("Tesla V100", 16384, "V100 16GB"),
        ("Tesla V100", 16160, "V100 16GB"),
        ("Tesla V100", 32768, "V100 32GB"),
        ("RTX 4090", 24564, "RTX 4090"),
        ("RTX 4090", 49140, "RTX 4090 48GB"),
        ("L40S", 46068, "L40S"),
        ("L40S", 49140, "L40S"),
        ("RTX 6000", 24576, "Quadro RTX 6000"),
        ("RTX 6000", 49140, "RTX 6000 Ada"),
        ("RTX 6000", 97887, "RTX PRO 6000"),
        ("H100", 81559, "H100"),
        ("H100", 95830, "H100 NVL"),
    ],
)
def test_memory_decides_between_variants_of_one_spelling(spelling: str, mib: int, name: str) -> None:
    assert _name(spelling, mib) == name


@pytest.mark.parametrize("memory", [0.0, -1.0, float("nan"), float("inf"), float("-inf"), 1e300])
def test_memory_that_cannot_be_is_not_used(memory: float) -> None:
    assert catalog().resolve("A100 SXM4", memory) == catalog().resolve("A100 SXM4")


@pytest.mark.parametrize(
    "spelling", ["RTX 4090", "rtx 4090", "RTX_4090", "rtx-4090", " RTX  4090 ", "NVIDIA RTX 4090", "nvidia-RTX4090"]
)
def test_case_blanks_hyphens_underscores_and_the_maker_do_not_matter(spelling: str) -> None:
    assert _name(spelling, 24564) == "RTX 4090"
    assert catalog().wanted(spelling) == ("RTX 4090", "RTX 4090 48GB")


def test_a_size_in_a_spelling_counts() -> None:
    assert _name("RTX 3090 24GB") == "RTX 3090"
    assert _name("H100 80GB") == "H100"
    assert _name("H100 94GB") == "H100 NVL"
    assert not catalog().resolve("RTX 3090 99GB").known


@pytest.mark.parametrize("name", sorted(set(MARKET_NAMES) - KNOWINGLY_UNKNOWN))
def test_an_owner_may_name_whatever_the_marketplace_spells(name: str) -> None:
    """A new installation has seen nothing yet: a provider's known spelling must be accepted."""
    assert catalog().resolve(name).name in catalog().wanted(name)


def test_the_seed_scripts_h100_80gb_wants_all_three_h100() -> None:
    assert catalog().wanted("H100 80GB") == ("H100 SXM", "H100 PCIe", "H100 NVL", "H100")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("H100", ("H100 SXM", "H100 PCIe", "H100 NVL", "H100")),
        ("H100 SXM", ("H100 SXM",)),
        ("H100 SXM5 80GB", ("H100 SXM",)),
        ("A100 80GB", ("A100 SXM 80GB", "A100 PCIe 80GB", "A100X", "A100 80GB")),
        ("A100 40GB", ("A100 SXM 40GB", "A100 PCIe 40GB", "A100 40GB")),
        ("A100 SXM", ("A100 SXM 80GB", "A100 SXM 40GB", "A100 SXM")),
        ("A100 SXM 80GB", ("A100 SXM 80GB",)),
        ("V100 32GB", ("V100 SXM2 32GB", "V100 PCIe 32GB", "V100 32GB")),
        ("GH200", ("GH200 96GB", "GH200 144GB", "GH200")),
        ("4090", ("RTX 4090", "RTX 4090 48GB")),
        ("3080 Ti", ("RTX 3080 Ti",)),
        ("H200", ("H200 SXM", "H200 NVL")),
        ("RTX 4090 48GB", ("RTX 4090 48GB",)),
        ("RTX PRO 6000", ("RTX PRO 6000 Server", "RTX PRO 6000 Workstation", "RTX PRO 6000 Max-Q", "RTX PRO 6000")),
        ("L40S 48GB", ("L40S",)),
        ("T4", ("T4",)),
    ],
)
def test_an_owners_words_stand_for_these_gpus(text: str, names: tuple[str, ...]) -> None:
    """A family means its members, a GPU's own name that GPU; a size narrows it."""
    assert catalog().wanted(text) == names


def test_a_gpus_own_name_means_it_and_its_namesakes_not_its_whole_family() -> None:
    """A watch on the RTX 4090 must not rent the slower RTX 4090 D, which has a name of its own."""
    assert catalog().wanted("RTX 4090") == ("RTX 4090", "RTX 4090 48GB")
    assert catalog().wanted("RTX 4090D") == ("RTX 4090 D",)


@pytest.mark.parametrize("text", ["", " ", "foo", "80GB", "NVIDIA", "H100 10GB", "6000", "100", "GPU", "\x00"])
def test_what_nobody_knows_stands_for_nothing(text: str) -> None:
    assert catalog().wanted(text) == ()


@pytest.mark.parametrize(("text", "meant"), [("H10O", "H100"), ("RTX 409O", "RTX 4090"), ("A100 SXN", "A100 SXM 80GB")])
def test_a_slip_is_answered_with_what_may_have_been_meant(text: str, meant: str) -> None:
    suggested = catalog().suggest(text)
    assert not catalog().wanted(text)
    assert meant in suggested
    assert len(suggested) <= 3


def test_an_unknown_spelling_is_kept_and_stands_for_itself() -> None:
    assert catalog().resolve("Tesla  X9000", 5.0) == GpuName("Tesla X9000", "Tesla X9000", False)
    assert catalog().spellings("Tesla X9000") == ("Tesla X9000",)


@pytest.mark.parametrize("hostile", ["X" * 1_000_000, "\x1b[2J" * 250_000, " " * 1_000_000 + "H100", "\ud800" * 9])
def test_a_hostile_spelling_is_short_printable_and_unknown(hostile: str) -> None:
    found = catalog().resolve(hostile, 80.0)
    assert not found.known
    assert len(found.name) <= MAX_NAME_LENGTH
    assert found.name.isprintable()
    assert catalog().wanted(hostile) == ()
    catalog().suggest(hostile)


def test_control_characters_become_blanks() -> None:
    assert clean_name("H100\x00\x1b[31m SXM\n") == "H100 [31m SXM"
    assert catalog().resolve("H100\tSXM\r\n").name == "H100 SXM"


@pytest.mark.parametrize("lookalike", ["L40Š", "RТX 4090", "Η100", "H100 SXΜ"])
def test_a_name_that_only_looks_like_another_is_not_that_one(lookalike: str) -> None:
    """Letters of other alphabets are not dropped: "L40Š" is not an L40."""
    assert not catalog().resolve(lookalike).known


def test_trade_marks_are_dropped() -> None:
    assert _name("NVIDIA® H100™ NVL") == "H100 NVL"


@given(st.text(max_size=200), st.one_of(st.none(), st.floats()))
def test_no_text_and_no_memory_breaks_a_look(text: str, memory_gib: float | None) -> None:
    found = catalog().resolve(text, memory_gib)
    assert found.name
    assert found.name.isprintable()
    assert catalog().resolve(text, memory_gib) == found


def test_spellings_that_are_remembered_are_bounded() -> None:
    """An answer full of invented names neither fills the memory nor displaces correct entries."""
    few = GpuCatalog(catalog().gpus())
    for number in range(12_000):
        few.resolve(f"Made up {number}")
    assert len(few._remembered) <= 5_000
    assert few.resolve("H100 SXM").name == "H100 SXM"


@pytest.mark.parametrize("gpu", catalog().gpus(), ids=lambda gpu: gpu.name)
def test_every_row_is_found_by_its_own_name(gpu: CatalogGpu) -> None:
    """Under its canonical name, with any memory it reports, and as an owner writes it."""
    for memory in (None, gpu.memory_gib, gpu.reported_min_gib, gpu.reported_max_gib):
        assert catalog().resolve(gpu.name, memory) == GpuName(gpu.name, gpu.family, True)
    assert gpu.name in catalog().wanted(gpu.name)
    if catalog().get(gpu.family) is None:
        assert gpu.name in catalog().wanted(gpu.family)
    assert gpu.reported_min_gib <= gpu.reported_max_gib
    assert gpu.memory_gib * 0.9 <= gpu.reported_max_gib


@pytest.mark.parametrize("gpu", catalog().gpus(), ids=lambda gpu: gpu.name)
def test_every_alias_means_a_gpu_of_its_own_family(gpu: CatalogGpu) -> None:
    for spelling in gpu.spellings:
        assert catalog().resolve(spelling, gpu.memory_gib).family == gpu.family, spelling


def test_only_a_bare_rtx_6000_is_shared_between_families() -> None:
    """Without the memory it is ambiguous; every other alias needs none to name its family."""
    shared = {
        fold(spelling)
        for gpu in catalog().gpus()
        for spelling in gpu.spellings
        if catalog().resolve(spelling).family != gpu.family
    }
    assert shared == {"rtx6000"}


@pytest.mark.parametrize(
    ("gpu", "reported_mib", "sold_gib"),
    [
        ("H100 SXM", 81559, 80),
        ("A10G", 22888, 24),
        ("L40S", 46068, 48),
        ("RTX A6000", 46068, 48),
        ("RTX 5090", 32607, 32),
        ("RTX 5060 Ti", 8151, 8151 / 1024),  # the 8 GB edition is not sold as 16
        ("RTX 2080 Ti", 22528, 22),  # a rebuilt card has this memory
        ("H100 SXM", 40960, 40),  # a slice
        ("H100 SXM", 75000, 75000 / 1024),
        ("GTX 1060", 3072, 3),  # an edition
        ("Tesla X9000", 5120, 5),
    ],
)
def test_memory_as_sold_is_the_label_of_a_whole_card(gpu: str, reported_mib: int, sold_gib: float) -> None:
    assert catalog().sold_memory_gib(gpu, reported_mib / 1024) == sold_gib


def test_reading_the_catalogue_costs_little() -> None:
    """Every start of `check` reads it. Counted in calls, 17,400 today: times would depend on the machine's load."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    catalog.cache_clear()
    sys.setprofile(count)
    try:
        catalog()
    finally:
        sys.setprofile(None)
    assert 1_000 < calls < 20_000
    assert catalog() is catalog()


def test_a_maker_alone_is_a_name_of_its_own() -> None:
    assert fold("NVIDIA") == "nvidia"
    assert fold("NVIDIA A100") == "a100"
