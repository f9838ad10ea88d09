"""Conditions as text: `when = "gpu_ram >= 80 and (nvlink or gpu_count == 1)"`. Parsed, never run as code. Pure.

    condition := both ("or" both)*
    both      := one ("and" one)*
    one       := "not" one | "(" condition ")" | name | name op value | value op name
                 | name ["not"] "in" "(" value, … ")"
    op        := < <= > >= == !=
    value     := number | text in quotation marks | "true" | "false"

Facts that a provider does not state are unknown: they make nothing true, and `not` leaves them unknown (Kleene, 1938).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

from gpuwatch.domain.market.gpu_names import catalog
from gpuwatch.domain.market.links import gpu_link, link_name, network_gbps
from gpuwatch.domain.market.money import MICRO, OfferPrice
from gpuwatch.domain.market.offer import Offer, arch_of, priced_units
from gpuwatch.domain.market.places import country_of, wanted_place
from gpuwatch.domain.plan.roofline import card_specs_of

LONGEST: Final = 500  # characters
_DEEPEST: Final = 20
_SPELLING: Final = (
    r"\s*(?:(?P<op><=|>=|==|!=|<|>|[(),])|(?P<number>\d+(?:\.\d+)?)"
    r"""|(?P<text>"[^"]*"|'[^']*')|(?P<name>[A-Za-z_]\w*))"""
)
# common synonyms whose nearest spelling would be another name
_OTHER_NAMES: Final = {
    **dict.fromkeys(("vram", "vram_gib", "min_vram_gib", "memory"), "gpu_ram"),
    **dict.fromkeys(("max_price", "price_per_gpu"), "gpu_price"),
    **dict.fromkeys(("gpus", "num_gpus", "count"), "gpu_count") | {"cores": "vcpu"},
    **dict.fromkeys(("gpu_mem_bw", "bandwidth", "mem_bandwidth", "memory_bandwidth", "mem_bw"), "gpu_bw"),
    **dict.fromkeys(("tdp", "power"), "watts") | dict.fromkeys(("boost", "boost_clock", "mhz"), "clock"),
    **dict.fromkeys(("disk_bandwidth", "disk_speed"), "disk_bw") | {"network_gbps": "inter_node_gbps"},
    "interruptible": "spot",
}
_WORDS: Final = frozenset({"and", "or", "not", "in", "true", "false"})  # in any case
_VALUE: Final = "a number, a text in quotation marks, true or false"
_MEANT: Final = {"=": "==", "&": "and", "|": "or", "!": "not", "[": "(", "]": ")"}
_TURNED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_ORDERS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda is_, value: bool(is_ < value),
    "<=": lambda is_, value: bool(is_ <= value),
    ">": lambda is_, value: bool(is_ > value),
    ">=": lambda is_, value: bool(is_ >= value),
    "==": lambda is_, value: bool(is_ == value),
    "!=": lambda is_, value: bool(is_ != value),
}
Known = Decimal | str | bool | None
Kind = Literal["number", "text", "yes or no"]


class Fact(msgspec.Struct, frozen=True):
    """One name: its type, its unit for the documents, and whether the price history keeps it."""

    kind: Kind
    unit: str
    read: Callable[[Offer, OfferPrice], object]
    is_recorded: bool = False


def _gpu_ram(offer: Offer, _price: OfferPrice) -> float | None:
    """Memory as sold, because a driver reserves some: an H100 that reports 79.6 GiB has 80."""
    has = offer.gpu_memory_gib
    return None if has is None else catalog().sold_memory_gib(offer.gpu, has)


def _usd(microusd: int) -> Decimal:
    return Decimal(microusd) / MICRO


def _gpu_price(offer: Offer, price: OfferPrice) -> Decimal:
    return _usd(price.price_microusd_hour) / priced_units(offer.gpu_count)


def _of_card(figure: str) -> Callable[[Offer, OfferPrice], object]:
    """A figure of the card by its data sheet; of the possible cards the guaranteed one, if the name leaves it open."""
    return lambda offer, _: getattr(card_specs_of(offer.gpu), figure, None)


FACTS: Final[dict[str, Fact]] = {
    "gpu": Fact("text", "a GPU or family, in any spelling", lambda offer, _: offer.gpu, True),
    "gpu_count": Fact("number", "GPUs of the offer", lambda offer, _: offer.gpu_count, True),
    "gpu_ram": Fact("number", "GiB per GPU, as advertised", _gpu_ram, True),
    "gpu_price": Fact("number", "USD per GPU-hour, with commission", _gpu_price, True),
    "price": Fact("number", "USD per hour, with commission", lambda _, price: _usd(price.price_microusd_hour), True),
    "tflops": Fact("number", "dense FP16 TFLOP/s per GPU, from its data sheet", _of_card("fp16_tflops"), True),
    "gpu_bw": Fact("number", "GB/s of a GPU's memory, from its data sheet", _of_card("bandwidth_gb_s"), True),
    "cuda_cores": Fact("number", "CUDA cores, or stream processors, per GPU", _of_card("cuda_cores"), True),
    "clock": Fact("number", "MHz of a GPU under load (boost), from its data sheet", _of_card("boost_mhz"), True),
    "watts": Fact("number", "W of a GPU under load, from its data sheet", _of_card("power_w"), True),
    "ecc": Fact("yes or no", "GPU memory with error correction, by its data sheet", _of_card("ecc"), True),
    "datacenter_card": Fact("yes or no", "a card for data centers, not for games", _of_card("datacenter_card"), True),
    "provider": Fact("text", "name of the provider", lambda offer, _: offer.provider, True),
    "region": Fact("text", "region in the provider's spelling", lambda offer, _: offer.region, True),
    "country": Fact("text", "code, name or group such as EU", lambda one, _: country_of(one.region, one.country), True),
    "spot": Fact("yes or no", "interruptible", lambda offer, _: offer.spot, True),
    "reliability": Fact("number", "0 to 1", lambda offer, _: offer.reliability, True),
    "verified": Fact("yes or no", "the provider has verified the host", lambda offer, _: offer.verified, True),
    "datacenter": Fact("yes or no", "in a data center", lambda offer, _: offer.datacenter),
    "zone": Fact("text", "zone within the region, if the provider has zones", lambda offer, _: offer.terms.zone),
    "prepaid": Fact("yes or no", "paid in advance, or for a term", lambda offer, _: bool(offer.terms.prepaid)),
    "nvlink": Fact("yes or no", "connected by NVLink", lambda offer, _: offer.nvlink),
    "interconnect": Fact("text", "link between its GPUs: NVLink, PCIe, …", lambda offer, _: gpu_link(offer)),
    "inter_node_gbps": Fact("number", "Gbit/s of each machine to others", lambda offer, _: network_gbps(offer)),
    "static_ip": Fact("yes or no", "with a static IP address", lambda offer, _: offer.static_ip),
    "cpu_arch": Fact("text", "x86_64 or arm64", lambda offer, _: arch_of(offer)),
    "vcpu": Fact("number", "vCPUs of the offer", lambda offer, _: offer.vcpu),
    "ram": Fact("number", "GiB of main memory", lambda offer, _: offer.ram_gib),
    "disk": Fact("number", "GB of free disk at the host", lambda offer, _: offer.disk_free_gb),
    "disk_bw": Fact("number", "MB/s of the disk, as the provider measured it", lambda offer, _: offer.disk_mb_s),
    "download": Fact("number", "Mbit/s", lambda offer, _: offer.download_mbps),
    "upload": Fact("number", "Mbit/s", lambda offer, _: offer.upload_mbps),
    "cuda": Fact("number", "highest CUDA version of the driver", lambda offer, _: offer.cuda_max),
    "ports": Fact("number", "open ports", lambda offer, _: offer.ports),
    "dlperf": Fact("number", "the provider's DLPerf score", lambda offer, _: offer.dlperf),
    "machine": Fact("text", "id of the machine", lambda offer, _: offer.machine_id),
    "host": Fact("text", "id of the host", lambda offer, _: offer.host_id),
}


class Comparison(msgspec.Struct, frozen=True):
    """Compares a fact with a value, or with several for `in`; a bare name is compared with true."""

    name: str
    op: str
    values: tuple[Decimal | str | bool, ...]


class BooleanCondition(msgspec.Struct, frozen=True):
    """All of its parts must hold for "and", one for "or", none for "not"."""

    word: Literal["and", "or", "not"]
    parts: tuple[Comparison | BooleanCondition, ...]


Condition = Comparison | BooleanCondition


@lru_cache(maxsize=256)
def parse(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ValueError: invalid; the message has the position, counted from 1, and what was expected.
    """
    if len(text) > LONGEST:
        raise ValueError(f"expected at most {LONGEST} characters")
    parser = _ConditionParser(text)
    found = parser.condition(0)
    parser.end()
    return found


def comparisons_of(condition: Condition) -> Iterator[Comparison]:
    """All comparisons in a condition."""
    if isinstance(condition, Comparison):
        yield condition
    else:
        for part in condition.parts:
            yield from comparisons_of(part)


def names_of(condition: Condition) -> Iterator[str]:
    """All names in a condition."""
    return (comparison.name for comparison in comparisons_of(condition))


def holds(condition: Condition, offer: Offer, price: OfferPrice) -> bool | None:
    """Whether the condition holds for an offer; None: unknown."""
    if isinstance(condition, Comparison):
        return _compared(condition, offer, price)
    found = [holds(part, offer, price) for part in condition.parts]
    if condition.word == "not":
        return None if found[0] is None else not found[0]
    decisive = condition.word == "or"
    return decisive if decisive in found else None if None in found else not decisive


def why_not(condition: Condition, offer: Offer, price: OfferPrice) -> str:
    """Why it does not hold, by the facts that decide: "gpu_ram is 24, not >= 80"."""
    if isinstance(condition, Comparison):
        return _shown(condition, offer, price)
    if condition.word == "not":
        inner = condition.parts[0]
        is_unknown = holds(inner, offer, price) is None
        return why_not(inner, offer, price) if is_unknown else f"{_text(inner)} is true, but must not be"
    failing = [part for part in condition.parts if not holds(part, offer, price)]
    return ("; " if condition.word == "and" else ", and ").join(why_not(part, offer, price) for part in failing)


class _ConditionParser:
    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._at = 0

    def condition(self, depth: int) -> Condition:
        return self._joined("or", self._both, depth)

    def _both(self, depth: int) -> Condition:
        return self._joined("and", self._one, depth)

    def _joined(self, word: Literal["and", "or"], part: Callable[[int], Condition], depth: int) -> Condition:
        parts = [part(depth)]
        while self._takes(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else BooleanCondition(word, tuple(parts))

    def _one(self, depth: int) -> Condition:
        if depth > _DEEPEST:
            raise self._fault(f"expected at most {_DEEPEST} levels of brackets and not")
        if self._takes("not"):
            return BooleanCondition("not", (self._one(depth + 1),))
        if self._takes("("):
            found = self.condition(depth + 1)
            self._needs(")")
            return found
        return self._comparison()

    def _comparison(self) -> Condition:
        token = kind, text, at = self._next("a name, a value, not or (")
        value = _value(kind, text)
        if value is not None:
            op = self._operator()
            return self._checked(*self._fact(*self._next("a name")), _TURNED[op], (value,), at)
        name, fact = self._fact(*token)
        if self._takes("not"):
            self._needs("in")
            return BooleanCondition("not", (self._checked(name, fact, "in", tuple(self._values()), at),))
        if self._takes("in"):
            return self._checked(name, fact, "in", tuple(self._values()), at)
        if self._peek()[1] not in _ORDERS:
            return self._checked(name, fact, "==", (True,), at)
        op = self._operator()
        value, at = self._one_value()
        return self._checked(name, fact, op, (value,), at)

    def _one_value(self) -> tuple[Decimal | str | bool, int]:
        kind, text, at = self._next("a number or a text")
        value = _value(kind, text)
        if value is None:
            raise self._fault(f"expected {_VALUE}", at)
        return value, at

    def _values(self) -> Iterator[Decimal | str | bool]:
        self._needs("(")
        while True:
            yield self._one_value()[0]
            if not self._takes(","):
                break
        self._needs(")")

    def _operator(self) -> str:
        _, text, at = self._next("a comparison")
        if text not in _ORDERS:
            raise self._fault("expected one of < <= > >= == !=", at)
        return text

    def _fact(self, kind: str, text: str, at: int) -> tuple[str, Fact]:
        if kind != "name" or text in _WORDS:
            raise self._fault("expected a name", at)
        fact = FACTS.get(text)
        if fact is None:
            from difflib import get_close_matches  # noqa: PLC0415 only needed for an error

            meant = _OTHER_NAMES.get(text.lower())
            near = [meant] if meant else get_close_matches(text.lower(), FACTS, n=1, cutoff=0.7)
            hint = f"; did you mean {near[0]}?" if near else "."
            names = ", ".join(FACTS)
            raise self._fault(f"unknown name {text}{hint} There are {names}", at)
        return text, fact

    def _checked(self, name: str, fact: Fact, op: str, values: tuple[Any, ...], at: int) -> Condition:
        right = {"number": Decimal, "text": str, "yes or no": bool}[fact.kind]
        if not all(isinstance(value, right) for value in values):
            raise self._fault(f"{name} is a {fact.kind} ({fact.unit})", at)
        if fact.kind == "text" and op not in {"==", "!=", "in"}:
            raise self._fault(f"{name} is a text: expected ==, != or in", at)
        if fact.kind == "yes or no" and op not in {"==", "!="}:
            raise self._fault(f"{name} is a yes or no: expected {name} or not {name}", at)
        if fact.kind == "yes or no":
            is_wanted = Comparison(name, "==", (True,))
            return is_wanted if values[0] is (op == "==") else BooleanCondition("not", (is_wanted,))
        return Comparison(name, op, values)

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at]

    def _next(self, expected: str) -> tuple[str, str, int]:
        found = self._tokens[self._at]
        if found[0] == "end":
            raise self._fault(f"expected {expected}, not the end")
        self._at += 1
        return found

    def _takes(self, text: str) -> bool:
        kind, found, _ = self._peek()
        is_it = found == text and kind in {"op", "name"}
        self._at += is_it
        return is_it

    def _needs(self, text: str) -> None:
        if not self._takes(text):
            raise self._fault(f"expected {text}")

    def end(self) -> None:
        if self._peek()[0] != "end":
            raise self._fault("expected and, or, or the end")

    def _fault(self, text: str, at: int | None = None) -> ValueError:
        return ValueError(f"at character {(self._peek()[2] if at is None else at) + 1}: {text}")


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    at, stripped = 0, text.rstrip()
    while at < len(stripped):
        found = re.compile(_SPELLING).match(stripped, at)
        if found is None:
            start = at + len(stripped[at:]) - len(stripped[at:].lstrip())
            meant = _MEANT.get(stripped[start])
            hint = f"; expected {meant}" if meant else ""
            raise ValueError(f"at character {start + 1}: {stripped[start]!r} is not understood{hint}")
        kind = str(found.lastgroup)
        is_word = kind == "name" and found[kind].lower() in _WORDS
        yield kind, found[kind].lower() if is_word else found[kind], found.start(kind)
        at = found.end()
    yield "end", "", len(stripped)


def _value(kind: str, text: str) -> Decimal | str | bool | None:
    """Parse a value; None: it is not a value."""
    if kind == "number":
        return Decimal(text)
    if kind == "text":
        return text[1:-1]
    return text == "true" if kind == "name" and text in {"true", "false"} else None


def _known(name: str, offer: Offer, price: OfferPrice) -> Known:
    """The fact in the offer; None: not stated."""
    value: Any = FACTS[name].read(offer, price)
    if isinstance(value, float):
        return Decimal(repr(value))
    return Decimal(value) if type(value) is int else value


def _compared(one: Comparison, offer: Offer, price: OfferPrice) -> bool | None:
    known = _known(one.name, offer, price)
    if known is None:
        return None
    if isinstance(known, str):
        is_one = known.casefold() in _texts(one)
        return not is_one if one.op == "!=" else is_one
    if one.op == "in":
        return known in one.values
    return _ORDERS[one.op](known, one.values[0])


@lru_cache(maxsize=256)
def _texts(one: Comparison) -> frozenset[str]:
    """The allowed values of a name; GPUs, countries and links in any spelling."""
    texts = [str(value) for value in one.values]
    if one.name == "gpu":
        texts = [name for text in texts for name in catalog().wanted(text) or (text, *catalog().unlisted(text))]
    elif one.name == "country":
        texts = [code for text in texts for code in wanted_place(text).countries]
    elif one.name == "interconnect":
        texts = [link_name(text) for text in texts]
    return frozenset(text.casefold() for text in texts)


def _shown(one: Comparison, offer: Offer, price: OfferPrice) -> str:
    is_ = _known(one.name, offer, price)
    if is_ is None:
        return f"{one.name} is unknown"
    shown = str(is_).lower() if isinstance(is_, bool) else f"{float(is_):.6g}" if isinstance(is_, Decimal) else str(is_)
    return f"{one.name} is {shown}" if one.values[0] is True else f"{one.name} is {shown}, not {_right(one)}"


def _right(one: Comparison) -> str:
    values = ", ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in one.values)
    return f"in ({values})" if one.op == "in" else f"{one.op} {values}"


def _text(condition: Condition) -> str:
    if isinstance(condition, Comparison):
        return condition.name if condition.values[0] is True else f"{condition.name} {_right(condition)}"
    if condition.word == "not":
        return f"not ({_text(condition.parts[0])})"
    parts = (f"({_text(part)})" if isinstance(part, BooleanCondition) else _text(part) for part in condition.parts)
    return f" {condition.word} ".join(parts)
