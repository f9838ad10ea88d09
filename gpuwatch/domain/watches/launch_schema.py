"""The schema of `[watch.launch]` and of a budget, and its conversion to plain values."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from gpuwatch.domain.setup.fields import Line, Span, SpanFrom1s, SpecTable, Switch, Usd, Whole
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
from gpuwatch.domain.watches.watch import Budget, BudgetPolicy, LaunchSpec, PriceIncreasePolicy, VerificationMode
from gpuwatch.secret import Secret


class LaunchTable(SpecTable):
    """`[watch.launch]`: what to rent and for how long."""

    image: Line = Field(
        default="vastai/pytorch", description="Container image. Default with a template: the template's."
    )
    template: Line | None = Field(default=None, description="Template of the provider, by hash or id.")
    onstart: Script | None = Field(
        default=None,
        repr=False,
        description="Shell commands to run when the instance starts; at most 4,000 characters.",
    )
    onstart_file: Line | None = Field(
        default=None, description="File with onstart; a relative path is relative to the settings file."
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict,
        repr=False,
        description='Environment variables of the instance: text, { from_env = "NAME" } or { from_file = "path" }.',
    )
    ports: Ports = Field(default=(), description='Ports to open: 8000, "8080:8000" (outside:inside), "53/udp".')
    runtype: Literal["ssh", "ssh_direct", "ssh_proxy", "jupyter", "jupyter_direct", "jupyter_proxy", "args"] = Field(
        default="ssh",
        description='Connection: "ssh", "jupyter" (or with _direct, _proxy), "args"; a template sets its own.',
    )
    registry: RegistryTable | None = Field(default=None, description="Login for a private image registry.")
    volume: VolumeTable | None = Field(default=None, description="Volume to mount.")
    label_extra: Label | None = Field(
        default=None, description="Text appended to gpuwatch's label; printable ASCII; a label keeps 20 characters."
    )
    max_active: Whole = Field(default=1, ge=1, le=1000, description="Launches of this watch active at the same time.")
    max_total: Whole = Field(
        default=1, ge=0, le=1_000_000, description="Launches of this watch in total; 0: unlimited."
    )
    max_runtime: SpanFrom1s | None = Field(
        None, description="Runtime after which the instance is destroyed. Required while dry_run = false."
    )
    ready_within: SpanFrom1s = Field(
        900.0,
        description="Time to start; after that the instance is destroyed and the next offer tried (default 15m).",
    )
    max_tries: Whole = Field(
        default=5, ge=1, le=100, description="Maximum number of offers to try when the watch fires."
    )
    try_for: SpanFrom1s = Field(default=120.0, description="Maximum total time of these tries (default 2m).")
    quote_ttl: Span = Field(
        default=5.0,
        description="Maximum age of an answer that is not requoted before the order (default 5s).",
    )
    approve_within: SpanFrom1s = Field(
        default=900.0, description='How long a quote of action = "ask" can be approved (default 15m).'
    )
    bid: BidTable | None = Field(
        default=None, description='Bid for interruptible offers; requires spot "only" or "any".'
    )
    relaunch: Switch = Field(
        default=False,
        description="true: after a preemption, rent elsewhere instead of on the same machine; requires spot.",
    )
    self_destruct: Switch = Field(
        default=False,
        description="true: the instance ends itself at its deadline, even if gpuwatch is down; requires max_runtime.",
    )
    verify: Literal["none", "listed", "ssh"] = Field(
        default=VerificationMode.LISTED.value,
        description='Check before it counts as running: "none", "listed" (the provider\'s list), "ssh" (its SSH port).',
    )
    ssh_key: Line | None = Field(
        default=None, description='Private key file for verify = "ssh"; relative to the settings file.'
    )
    wasteful_below: Percent | None = Field(
        default=None, description="GPU utilisation in percent; below it, gpuwatch sends an alert."
    )
    wasteful_for: SpanFrom1s = Field(
        default=1800.0, description="Time below wasteful_below before the alert (default 30m)."
    )
    idle_below: Percent | None = Field(default=None, description="GPU utilisation in percent; requires idle_for.")
    idle_for: SpanFrom1s | None = Field(
        None, description="Time below idle_below after which the instance is destroyed."
    )
    stop_outside: Switch = Field(
        default=False, description="true: destroy the instance when the `active` windows close; requires active."
    )
    on_price_increase: Literal["alert", "stop", "accept_under"] = Field(
        default=PriceIncreasePolicy.ALERT.value,
        description='If the host raises the price: "alert", "stop", or "accept_under" (while at or under max_price).',
    )
    on_running: Hook | None = Field(
        default=None,
        description='Hook to run once it is running: "command", or { url = "https://…", secret = "…" }; receives JSON.',
    )
    before_stop: Hook | None = Field(
        default=None, description="Hook to run before it is destroyed; delays that by at most its timeout."
    )
    on_ended: Hook | None = Field(default=None, description="Hook to run after it has ended.")
    hook_timeout: HookSpan = Field(default=30.0, description="Timeout of a hook, 1s to 5m (default 30s).")

    @model_validator(mode="after")
    def _idle_pair(self) -> LaunchTable:
        if (self.idle_below is None) != (self.idle_for is None):
            raise ValueError("expected both idle_below and idle_for")
        return self

    def value(self) -> LaunchSpec:
        """Return the value that the engine uses."""
        by_template = {"image", "runtype"} - self.model_fields_set if self.template is not None else set()
        enums = {
            "verify": VerificationMode(self.verify),
            "on_price_increase": PriceIncreasePolicy(self.on_price_increase),
        }
        env = {
            "env": {name: value for name, value in self.env.items() if isinstance(value, str)},
            "secret_env": {name: value for name, value in self.env.items() if isinstance(value, Secret)},
        }
        return LaunchSpec(**self.fields_of(LaunchSpec) | dict.fromkeys(by_template, "") | enums | env)


class BudgetTable(SpecTable):
    """A budget. A launch that would exceed it is refused and reported."""

    max_usd_hour: Usd | None = Field(default=None, description="USD per hour for all instances together.")
    max_usd_day: Usd | None = Field(default=None, description="USD per day (UTC).")
    max_usd_month: Usd | None = Field(default=None, description="USD per month (UTC).")
    max_instances: Annotated[Whole, Field(ge=0, le=1_000_000)] | None = Field(
        default=None, description="Maximum number of active instances."
    )
    on_reached: Literal["warn", "stop"] = Field(
        default=BudgetPolicy.WARN.value,
        description='"warn": send an alert when it is reached; "stop": also end launches. Also alerts at 80 %.',
    )

    def value(self) -> Budget:
        """Return the value that the engine uses."""
        return Budget(**self.fields_of(Budget) | {"on_reached": BudgetPolicy(self.on_reached)})
