"""Nimbus: an invented cloud with regions, prices in cents, numbers as ids and lists of several pages.

source: nobody; it shows what a stranger writes for a cloud that lists machine types and creates machines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from gpuwatch.plugin_api import (
    Billing,
    ErrorBody,
    HttpReply,
    Instance,
    InstanceState,
    ListPage,
    MachineCloud,
    MachineType,
    OfferGone,
    OptionSpec,
    Order,
    OrderError,
    OrderRefused,
    ParseResult,
    ProviderInfo,
    RefusalKind,
    RowSkipped,
    StatusWords,
    at,
    declared,
    first_boot_script,
    machine_fields,
    matched,
    number,
    parse_utc,
    stated,
    usd_hour,
    whole,
    word,
)

INFO = ProviderInfo(
    name="nimbus",
    title="Nimbus",
    base_url="https://api.nimbus.example/v3",
    key_names=("NIMBUS_KEY",),
    launches=True,
    runs_images=False,
    billing=Billing(step_s=3600.0, prepaid=True),
    options=(
        OptionSpec(name="ssh_key", kind="text", about="Id of an SSH key at Nimbus; required for renting."),
        OptionSpec(name="image", kind="text", default="ubuntu-24", about="System image."),
    ),
    label_length=63,
    prerequisites=declared("launching.md", credentials="a key", balance="credit", key_pair="the SSH key"),
)
_PLAN = re.compile(r"[a-z0-9.-]{1,30}")
_REGION = re.compile(r"[a-z]{3}\d")


class NimbusCloud(MachineCloud):
    """An account at Nimbus."""

    info, key_header = INFO, "X-Nimbus-Key"
    types_path, types_at = "/plans", ("plans",)
    offer_id = re.compile(rf"({_PLAN.pattern})/({_REGION.pattern})")
    create_path, created_at = "/servers", ("server", "id")
    instance_id, instance_path, instance_at = re.compile(r"\d{1,18}"), "/servers/{}", ("server",)
    instances_path, has_numeric_ids = "/servers", True
    ssh_keys_path, ssh_keys_at = "/keys", ("keys",)
    prerequisites = MachineCloud.check_ssh_key
    status_words = StatusWords({
        **dict.fromkeys(("queued", "building"), InstanceState.STARTING),
        "on": InstanceState.RUNNING,
        "off": InstanceState.STOPPED,
        "broken": InstanceState.FAILED,
        "going": InstanceState.ENDING,
    })  # fmt: skip
    ends_once = True

    def read_type(self, row: Any, result: ParseResult, observed_at: datetime) -> bool:
        """Add an offer for each region with stock; False: a plan without GPUs."""
        gpus = stated(whole(at(row, "accelerator", "count"), 0, 64), "no number of GPUs")
        if not gpus:
            return False
        plan = stated(matched(at(row, "slug"), _PLAN), "no name")
        wire = stated(word(at(row, "accelerator", "model"), 60), "no name of its GPU")
        price = stated(usd_hour((number(at(row, "cents")) or 0.0) / 100), "no usable price")
        machine = MachineType.of(
            wire,
            gpus,
            number(at(row, "accelerator", "gib"), 1, 2_000),
            vcpu=number(at(row, "cpus"), 1, 1_000),
            disk_gb=number(at(row, "disk"), 1, 1e6),
        )
        if not isinstance(stock := at(row, "stock"), dict):
            raise RowSkipped("nothing about its stock")
        for region, left in stock.items():
            if matched(region, _REGION) and whole(left, 1):
                offer = machine.offer(
                    provider=INFO.name,
                    offer_id=f"{plan}/{region}",
                    usd_hour=price,
                    terms=machine.terms(plan),
                    observed_at=observed_at,
                    region=region,
                )
                result.offers.append(offer)
        return True

    def create_body(self, order: Order) -> dict[str, Any]:
        """Build the create request; the label is the name."""
        plan = self.parts_of(order)
        return {
            "plan": plan[1],
            "region": plan[2],
            "name": order.label,
            "image": self.options.get("image"),
            "keys": [self.required_ssh_key()],
            "boot": first_boot_script(order.onstart, order.env) or "",
        }

    def instance_rows(self) -> list[Any]:
        """Return the rows of all pages."""

        def read_page(value: Any, received: int) -> ListPage:
            rows, total = at(value, "servers"), at(value, "total")
            return self.counted_page("servers", rows, total, received, lambda first: {"from": str(first)})

        return list(self.each_row(self.instances_path, read_page, {"from": "0"}))

    def parse_instance(self, row: Mapping[str, Any]) -> Instance:
        """Return the instance of a row."""
        return Instance(
            **machine_fields(row, self.status_words, self.name, ip=word(row.get("ipv4"), 64), user="root"),
            label=word(row.get("name")),
            spot=False,
            listed_usd_hour=usd_hour((number(row.get("cents")) or 0.0) / 100),
            started_at=parse_utc(row.get("created")),
        )

    def credit_usd(self) -> float | None:
        """Return the credit."""
        return self.read_credit("/account", "credit", currency_key="currency")

    def is_not_found(self, body: ErrorBody) -> bool:
        """Whether Nimbus itself states that there is no such server."""
        return body.status == 404 and body.code == "no_server"

    def refusal(self, line: str, body: ErrorBody, reply: HttpReply, now: datetime) -> OrderError | None:
        """Map the codes of Nimbus."""
        if body.code == "sold_out":
            return OfferGone(line)
        return OrderRefused(line, RefusalKind.NO_CREDIT) if body.code == "no_money" else None


build = NimbusCloud.build
