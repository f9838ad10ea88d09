"""What an owner may write in `[watch.launch]` and in a budget, and the plain values that come of it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuwatch.domain.watches.fields import (
    Line,
    Span,
    SpanFrom1s,
    Switch,
    Table,
    Usd,
    Whole,
)
from gpuwatch.domain.watches.launch_parts import (
    BidTable,
    EnvName,
    EnvValue,
    Hook,
    HookSpan,
    Label,
    Percent,
    Ports,
    RegistryTable,
    Script,
    VolumeTable,
    float_or_none,
)
from gpuwatch.domain.watches.watch import (
    Budget,
    LaunchSpec,
    OnBudget,
    OnIncrease,
    Verify,
)


class LaunchTable(Table):
    """`[watch.launch]`: what to rent, and how long."""

    image: Line = Field(default="vastai/pytorch", description="Container image; with a template: the template's.")
    template: Line | None = Field(default=None, description="A template of the provider, by its hash or id.")
    onstart: Script | None = Field(
        default=None,
        repr=False,
        description="Shell commands that run when the instance starts; at most 4,000 characters.",
    )
    onstart_file: Line | None = Field(
        default=None, description="File that holds onstart instead; a relative path is relative to the settings file."
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict,
        repr=False,
        description='Environment variables of the instance: text, { from_env = "NAME" } or { from_file = "path" }.',
    )
    ports: Ports = Field(default=(), description='Ports to open: 8000, "8080:8000" (outside:inside), "53/udp".')
    runtype: Literal["ssh", "ssh_direct", "ssh_proxy", "jupyter", "jupyter_direct", "jupyter_proxy", "args"] = Field(
        default="ssh",
        description='How it is entered: "ssh", "jupyter" (or with _direct, _proxy), "args"; a template has its own.',
    )
    registry: RegistryTable | None = Field(default=None, description="Login of a private image registry.")
    volume: VolumeTable | None = Field(default=None, description="A volume to mount.")
    label_extra: Label | None = Field(
        default=None, description="Text behind gpuwatch's own label; printable ASCII, at most 38 characters."
    )
    max_active: Whole = Field(default=1, ge=1, le=1000, description="Instances of this watch alive at once.")
    max_total: Whole = Field(default=1, ge=0, le=1_000_000, description="Instances of this watch in all; 0: no limit.")
    max_runtime: SpanFrom1s | None = Field(
        None, description="Duration; then the instance is destroyed. Needed while dry_run = false."
    )
    ready_within: SpanFrom1s = Field(
        900.0, description="Duration; not running by then: destroyed, and the next offer is tried (default 15m)."
    )
    max_tries: Whole = Field(default=5, ge=1, le=100, description="Offers tried within one firing.")
    try_for: SpanFrom1s = Field(default=120.0, description="Duration of all these tries together (default 2m).")
    quote_ttl: Span = Field(
        default=5.0,
        description="Duration; an answer younger than this needs no second look before the rent (default 5s).",
    )
    approve_within: SpanFrom1s = Field(
        default=900.0, description='Duration in which a quote of action = "ask" may be approved (default 15m).'
    )
    bid: BidTable | None = Field(default=None, description='Bid for interruptible offers; needs spot "only" or "any".')
    relaunch: Switch = Field(
        default=False, description="true: after a preemption rent elsewhere, not on the same machine; needs spot."
    )
    self_destruct: Switch = Field(
        default=False,
        description="true: the instance ends itself at its deadline, even if gpuwatch is gone; needs max_runtime.",
    )
    verify: Literal["none", "listed", "ssh"] = Field(
        default=Verify.LISTED.value,
        description='What is checked before it counts as running: "none", "listed" (what is listed), "ssh" (its port).',
    )
    ssh_key: Line | None = Field(
        default=None, description='File of the private key for verify = "ssh"; relative to the settings file.'
    )
    wasteful_below: Percent | None = Field(
        default=None, description="Percent of GPU use under which the owner is told."
    )
    wasteful_for: SpanFrom1s = Field(
        default=1800.0, description="Duration under wasteful_below before the owner is told (default 30m)."
    )
    idle_below: Percent | None = Field(default=None, description="Percent of GPU use; goes with idle_for.")
    idle_for: SpanFrom1s | None = Field(None, description="Duration under idle_below; then the instance is destroyed.")
    stop_outside: Switch = Field(
        default=False, description="true: destroyed when the windows of `active` close; needs active."
    )
    on_price_increase: Literal["alert", "stop", "accept_under"] = Field(
        default=OnIncrease.ALERT.value,
        description='When the host raises the price: "alert", "stop", or "accept_under" (while at or under max_price).',
    )
    on_running: Hook | None = Field(
        default=None, description='Run when it runs: "command", or { url = "https://…", secret = "…" }; gets JSON.'
    )
    before_stop: Hook | None = Field(default=None, description="The same, before it is destroyed; never holds that up.")
    on_ended: Hook | None = Field(default=None, description="The same, when it is over.")
    hook_timeout: HookSpan = Field(
        default=30.0, description="Duration that one of these may take, 1s to 5m (default 30s)."
    )

    @model_validator(mode="after")
    def _idle_pair(self) -> LaunchTable:
        if (self.idle_below is None) != (self.idle_for is None):
            raise ValueError("expected idle_below and idle_for together")
        return self

    def value(self) -> LaunchSpec:
        """As the engine uses it."""
        by_template = {"image", "runtype"} - self.model_fields_set if self.template is not None else set()
        return LaunchSpec(
            image="" if "image" in by_template else self.image,
            onstart=self.onstart,
            env=dict(self.env),
            ports=self.ports,
            runtype="" if "runtype" in by_template else self.runtype,
            template=self.template,
            registry=self.registry.value() if self.registry else None,
            volume=self.volume.value() if self.volume else None,
            label_extra=self.label_extra,
            max_active=self.max_active,
            max_total=self.max_total,
            max_runtime_s=self.max_runtime,
            ready_within_s=self.ready_within,
            max_tries=self.max_tries,
            try_for_s=self.try_for,
            quote_ttl_s=self.quote_ttl,
            approve_within_s=self.approve_within,
            bid=self.bid.value() if self.bid else None,
            relaunch=self.relaunch,
            self_destruct=self.self_destruct,
            verify=Verify(self.verify),
            ssh_key=self.ssh_key,
            wasteful_below=float_or_none(self.wasteful_below),
            wasteful_for_s=self.wasteful_for,
            idle_below=float_or_none(self.idle_below),
            idle_for_s=self.idle_for,
            stop_outside=self.stop_outside,
            on_price_increase=OnIncrease(self.on_price_increase),
            on_running=self.on_running.value() if self.on_running else None,
            before_stop=self.before_stop.value() if self.before_stop else None,
            on_ended=self.on_ended.value() if self.on_ended else None,
            hook_timeout_s=self.hook_timeout,
        )


class BudgetTable(Table):
    """A budget. A launch that would break one is refused, and told."""

    max_usd_hour: Usd | None = Field(default=None, description="USD per hour of all instances together.")
    max_usd_day: Usd | None = Field(default=None, description="USD per day (UTC).")
    max_usd_month: Usd | None = Field(default=None, description="USD per month (UTC).")
    max_instances: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Instances alive at once."
    )
    on_reached: Literal["warn", "stop"] = Field(
        default=OnBudget.WARN.value,
        description='"warn": told when what runs reaches it; "stop": stopped as well. Told at 80 % too.',
    )

    def value(self) -> Budget:
        """As the engine uses it."""
        return Budget(
            max_usd_hour=self.max_usd_hour,
            max_usd_day=self.max_usd_day,
            max_usd_month=self.max_usd_month,
            max_instances=self.max_instances,
            on_reached=OnBudget(self.on_reached),
        )
