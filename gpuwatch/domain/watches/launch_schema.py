"""The schema of `[watch.launch]` and of a budget, and its conversion to plain values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuwatch.domain.watches.fields import Line, Span, SpanFrom1s, SpecTable, Switch, Usd, Whole
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
)
from gpuwatch.domain.watches.watch import Budget, LaunchSpec, OnBudget, OnIncrease, Verify


class LaunchTable(SpecTable):
    """`[watch.launch]`: what to rent and for how long."""

    image: Line = Field(
        default="vastai/pytorch", description="Container image. Default with a template: the template's."
    )
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
        description='How to connect: "ssh", "jupyter" (or with _direct, _proxy), "args"; a template has its own.',
    )
    registry: RegistryTable | None = Field(default=None, description="Login of a private image registry.")
    volume: VolumeTable | None = Field(default=None, description="A volume to mount.")
    label_extra: Label | None = Field(
        default=None, description="Text after gpuwatch's own label; printable ASCII, at most 38 characters."
    )
    max_active: Whole = Field(default=1, ge=1, le=1000, description="Instances of this watch alive at the same time.")
    max_total: Whole = Field(
        default=1, ge=0, le=1_000_000, description="Instances of this watch in total; 0: no limit."
    )
    max_runtime: SpanFrom1s | None = Field(
        None, description="Duration after which the instance is destroyed. Required while dry_run = false."
    )
    ready_within: SpanFrom1s = Field(
        900.0,
        description="Duration to start within; else it is destroyed and the next offer tried (default 15m).",
    )
    max_tries: Whole = Field(default=5, ge=1, le=100, description="Offers tried within one firing.")
    try_for: SpanFrom1s = Field(default=120.0, description="Total duration of these tries (default 2m).")
    quote_ttl: Span = Field(
        default=5.0,
        description="Duration for which an answer is not checked again before the order (default 5s).",
    )
    approve_within: SpanFrom1s = Field(
        default=900.0, description='Duration for which a quote of action = "ask" can be approved (default 15m).'
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
        description='Check before it counts as running: "none", "listed" (the provider\'s list), "ssh" (its SSH port).',
    )
    ssh_key: Line | None = Field(
        default=None, description='File of the private key for verify = "ssh"; relative to the settings file.'
    )
    wasteful_below: Percent | None = Field(
        default=None, description="Percent of GPU utilisation under which you get an alert."
    )
    wasteful_for: SpanFrom1s = Field(
        default=1800.0, description="Duration under wasteful_below before you get an alert (default 30m)."
    )
    idle_below: Percent | None = Field(default=None, description="Percent of GPU utilisation; used with idle_for.")
    idle_for: SpanFrom1s | None = Field(
        None, description="Duration under idle_below after which the instance is destroyed."
    )
    stop_outside: Switch = Field(
        default=False, description="true: destroyed when the windows of `active` close; needs active."
    )
    on_price_increase: Literal["alert", "stop", "accept_under"] = Field(
        default=OnIncrease.ALERT.value,
        description='When the host raises the price: "alert", "stop", or "accept_under" (while at or under max_price).',
    )
    on_running: Hook | None = Field(
        default=None,
        description='Hook to run once it runs: "command", or { url = "https://…", secret = "…" }; gets JSON.',
    )
    before_stop: Hook | None = Field(
        default=None, description="Hook to run before it is destroyed; delays that by its time-out at most."
    )
    on_ended: Hook | None = Field(default=None, description="Hook to run when it is over.")
    hook_timeout: HookSpan = Field(default=30.0, description="Longest duration of one hook, 1s to 5m (default 30s).")

    @model_validator(mode="after")
    def _idle_pair(self) -> LaunchTable:
        if (self.idle_below is None) != (self.idle_for is None):
            raise ValueError("expected idle_below and idle_for together")
        return self

    def value(self) -> LaunchSpec:
        """Return the value that the engine uses."""
        by_template = {"image", "runtype"} - self.model_fields_set if self.template is not None else set()
        enums = {"verify": Verify(self.verify), "on_price_increase": OnIncrease(self.on_price_increase)}
        return LaunchSpec(**self.fields_of(LaunchSpec) | dict.fromkeys(by_template, "") | enums)


class BudgetTable(SpecTable):
    """A budget. A launch that would exceed it is refused and reported."""

    max_usd_hour: Usd | None = Field(default=None, description="USD per hour for all instances together.")
    max_usd_day: Usd | None = Field(default=None, description="USD per day (UTC).")
    max_usd_month: Usd | None = Field(default=None, description="USD per month (UTC).")
    max_instances: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Instances alive at the same time."
    )
    on_reached: Literal["warn", "stop"] = Field(
        default=OnBudget.WARN.value,
        description='"warn": an alert when it is reached; "stop": launches end as well. Also an alert at 80 %.',
    )

    def value(self) -> Budget:
        """Return the value that the engine uses."""
        return Budget(**self.fields_of(Budget) | {"on_reached": OnBudget(self.on_reached)})
