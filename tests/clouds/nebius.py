"""Nebius on loopback, as real gRPC: tenants, projects, subnets, capacity advice, prices and instances.

source: as gpuwatch/providers/nebius; messages and services are the SDK's own. Prices and free machines are invented.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

import grpc
from nebius.api.nebius.billing import v1alpha1 as billing
from nebius.api.nebius.capacity import v1 as capacity
from nebius.api.nebius.common import v1 as common
from nebius.api.nebius.compute import v1 as compute
from nebius.api.nebius.iam import v1 as old_iam
from nebius.api.nebius.iam import v2 as iam
from nebius.api.nebius.vpc import v1 as vpc
from nebius.base._service_error import pbrpc_status_of_errors

from tests.clouds.nebius_market import FRESH, FULL, HIGH, PRESETS, SPOT, Availability, Preset, advised, listed_platforms

TENANT: Final = "tenant-e00demo"
IMAGE: Final = "ubuntu24.04-cuda13.0"
DISK_USD_GIB_HOUR: Final = 0.0001


class ReceivedCall(NamedTuple):
    """One call: "nebius.compute.v1.InstanceService/Create", its message, and its metadata."""

    name: str
    message: Any
    metadata: dict[str, str]


class PlannedFailure(NamedTuple):
    """The replacement of the next matching call's answer."""

    matching: re.Pattern[str]
    code: grpc.StatusCode
    text: str
    errors: tuple[Any, ...]
    carried_out: bool


class RefusedCall(Exception):
    """A call that is answered with a status."""

    def __init__(self, code: grpc.StatusCode, text: str, *errors: Any) -> None:
        super().__init__(text)
        self.code, self.text, self.errors = code, text, errors


def _handlers() -> dict[str, tuple[str, type]]:
    """Return full name → our method that answers it, and the class of its request."""
    of = "nebius.{}/{}".format
    return {
        of("iam.v2.TenantService", "List"): ("tenants", iam.ListTenantsRequest),
        of("iam.v2.ProjectService", "List"): ("all_projects", iam.ListProjectsRequest),
        of("iam.v1.TenantService", "List"): ("old_tenants", old_iam.ListTenantsRequest),
        of("iam.v1.ProjectService", "List"): ("old_projects", old_iam.ListProjectsRequest),
        of("iam.v1.TokenExchangeService", "Exchange"): ("exchange", old_iam.ExchangeTokenRequest),
        of("vpc.v1.SubnetService", "List"): ("all_subnets", vpc.ListSubnetsRequest),
        of("capacity.v1.ResourceAdviceService", "List"): ("advice", capacity.ListResourceAdviceRequest),
        of("billing.v1alpha1.SpotPriceService", "List"): ("spot_prices", billing.ListSpotPricesRequest),
        of("billing.v1alpha1.CalculatorService", "Estimate"): ("estimate", billing.EstimateRequest),
        of("compute.v1.PlatformService", "List"): ("platforms", compute.ListPlatformsRequest),
        of("compute.v1.ImageService", "ListPublic"): ("images", compute.ListPublicRequest),
        of("compute.v1.InstanceService", "List"): ("all_instances", compute.ListInstancesRequest),
        of("compute.v1.InstanceService", "Get"): ("instance", compute.GetInstanceRequest),
        of("compute.v1.InstanceService", "Create"): ("create", compute.CreateInstanceRequest),
        of("compute.v1.InstanceService", "Delete"): ("delete", compute.DeleteInstanceRequest),
        of("compute.v1.InstanceService", "Stop"): ("stop", compute.StopInstanceRequest),
        of("compute.v1.InstanceService", "Start"): ("start", compute.StartInstanceRequest),
    }


class Nebius(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A small Nebius; a context manager.

    Args:
        boots_s: duration of an instance's creation.
        most_rows: of a page, whatever is requested.
    """

    def __init__(
        self,
        *,
        key: str = "demo-key",
        clock: Callable[[], float] = time.time,
        boots_s: float = 0.0,
        most_rows: int = 100,
    ) -> None:
        self.key, self.clock, self.boots_s, self.most_rows = key, clock, boots_s, most_rows
        self.lock = threading.RLock()
        self.calls: list[ReceivedCall] = []
        self.presets = list(PRESETS)
        self.spot = dict(SPOT)
        self.tenant_ids = [TENANT]
        self.stopped: set[str] = set()  # instances that were stopped, or have shut themselves down
        self.projects = {"project-e00demo": ("eu-north1", "default-eu"), "project-u00demo": ("us-central1", "mine")}
        self.subnets = {"project-e00demo": ["default-subnet-x1"], "project-u00demo": ["default-subnet-x2", "other"]}
        self.at_limit: set[tuple[str, bool]] = set()  # platform and rental type
        self.state = FRESH
        self.level = HIGH
        self.instances: dict[str, Any] = {}
        self.ready_at: dict[str, float] = {}
        self._by_key: dict[str, str] = {}
        self._failures: list[PlannedFailure] = []
        self._methods = _handlers()
        self._number = 0
        self._port = 0
        self.url = ""

    # --- a server -----------------------------------------------------------------------------------------------------
    def at(self, port: int, key: str) -> Self:
        """Set the port and the accepted key, before the start."""
        self._port, self.key = port, key
        return self

    def __enter__(self) -> Self:
        self._server = grpc.server(ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self,))
        self.url = f"http://127.0.0.1:{self._server.add_insecure_port(f'127.0.0.1:{self._port}')}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait()

    def fail(
        self, matching: str, code: grpc.StatusCode, text: str = "no", *errors: Any, carried_out: bool = False
    ) -> None:
        """Let the next matching call fail; `carried_out`: it takes effect anyway."""
        self._failures.append(PlannedFailure(re.compile(matching), code, text, errors, carried_out))

    def forget_failures(self) -> None:
        """Return planned failures that did not occur."""
        self._failures.clear()

    def count(self, matching: str) -> int:
        """Return the number of matching calls."""
        return sum(1 for call in self.calls if re.search(matching, call.name))

    def service(self, details: Any) -> Any:
        """gRPC's hook: return the handler of a method; None: there is none."""
        name = details.method.lstrip("/")
        if name not in self._methods:
            return None
        answers, request = self._methods[name]

        def answer(message: Any, context: Any) -> Any:
            metadata = {one.key: one.value for one in context.invocation_metadata()}
            try:
                return self._answered(name, getattr(self, answers), message, metadata)
            except RefusedCall as refused:
                status = pbrpc_status_of_errors(refused.code.value[0], refused.text, list(refused.errors))
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
                context.abort(refused.code, refused.text)

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=request.FromString,  # type: ignore[attr-defined]
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _answered(self, name: str, answers: Callable[..., Any], message: Any, metadata: dict[str, str]) -> Any:
        with self.lock:
            self.calls.append(ReceivedCall(name, message, metadata))
            planned = next((failure for failure in self._failures if failure.matching.search(name)), None)
            if planned is not None:
                self._failures.remove(planned)
                if planned.carried_out:
                    answers(message, metadata)
                raise RefusedCall(planned.code, planned.text, *planned.errors)
            if (
                "SpotPrice" not in name
                and "TokenExchange" not in name
                and metadata.get("authorization") != f"Bearer {self.key}"
            ):
                raise RefusedCall(grpc.StatusCode.UNAUTHENTICATED, "invalid token")
            return answers(message, metadata)

    def _page(self, request: Any, rows: list[Any]) -> tuple[list[Any], str]:
        first = int(request.page_token or 0)
        last = first + min(request.page_size or 10, self.most_rows)
        return rows[first:last], str(last) if last < len(rows) else ""

    # --- the account --------------------------------------------------------------------------------------------------
    def tenants(self, _request: Any, _: Any) -> Any:
        rows = [
            iam.Tenant(metadata=common.ResourceMetadata(id=tenant_id, name="demo")) for tenant_id in self.tenant_ids
        ]
        return iam.ListTenantsResponse(items=rows)

    def all_projects(self, request: Any, _: Any) -> Any:
        rows = [
            iam.Project(metadata=common.ResourceMetadata(id=one, name=name), spec=iam.ProjectSpec(region=region))
            for one, (region, name) in self.projects.items()
            if request.parent_id == TENANT
        ]
        items, token = self._page(request, rows)
        return iam.ListProjectsResponse(items=items, next_page_token=token)

    def exchange(self, request: Any, _: Any) -> Any:
        """Return a token for a signed statement, which is not verified."""
        if request.subject_token.count(".") != 2:
            raise RefusedCall(grpc.StatusCode.UNAUTHENTICATED, "no JWT")
        return old_iam.CreateTokenResponse(access_token=self.key, token_type="Bearer", expires_in=43_200)

    def old_tenants(self, _request: Any, _: Any) -> Any:
        rows = [old_iam.Container(metadata=common.ResourceMetadata(id=TENANT, name="demo"))]
        return old_iam.ListTenantsResponse(items=rows)

    def old_projects(self, _request: Any, _: Any) -> Any:
        rows = [
            old_iam.Container(
                metadata=common.ResourceMetadata(id=one, name=name), status=old_iam.ContainerStatus(region=region)
            )
            for one, (region, name) in self.projects.items()
        ]
        return old_iam.ListProjectsResponse(items=rows)

    def all_subnets(self, request: Any, _: Any) -> Any:
        rows = [
            vpc.Subnet(metadata=common.ResourceMetadata(id=f"vpcsubnet-{name.replace('-', '')}", name=name))
            for name in self.subnets.get(request.parent_id, [])
        ]
        items, token = self._page(request, rows)
        return vpc.ListSubnetsResponse(items=items, next_page_token=token)

    # --- the market ---------------------------------------------------------------------------------------------------
    def advice(self, request: Any, _: Any) -> Any:
        if request.parent_id != TENANT:
            raise RefusedCall(grpc.StatusCode.PERMISSION_DENIED, "no such tenant")
        items, token = self._page(request, [advised(preset, self._free) for preset in self.presets])
        return capacity.ListResourceAdviceResponse(items=items, next_page_token=token)

    def _free(self, platform: str, spot: bool, machines: int) -> Any:
        if (platform, spot) in self.at_limit:
            return Availability(data_state=self.state, available=0, availability_level=FULL)
        return Availability(data_state=self.state, available=machines, limit=10, availability_level=self.level)

    def spot_prices(self, request: Any, _: Any) -> Any:
        rows = [
            billing.SpotPrice(
                region=region,
                compute_instance=billing.SpotPriceComputeInstance(platform=platform),
                price=billing.SpotPriceValue(value=str(usd), currency="usd", unit_title="GPU hour"),
            )
            for (region, platform), usd in self.spot.items()
        ]
        items, token = self._page(request, rows)
        return billing.ListSpotPricesResponse(items=items, next_page_token=token)

    def estimate(self, request: Any, _: Any) -> Any:
        spec = request.resource_spec
        if (disk := spec.compute_disk_spec) is not None:
            usd = disk.spec.size_gibibytes * DISK_USD_GIB_HOUR
        else:
            wanted = spec.compute_instance_spec
            usd = self._preset(wanted.metadata.parent_id, wanted.spec.resources).usd
        total = billing.CostBreakdown(cost=str(usd), cost_rounded=f"{usd:.2f}")
        cost = billing.ResourceGroupCost(general=billing.GeneralTotalCost(total=total))
        return billing.EstimateResponse(hourly_cost=cost)

    def platforms(self, request: Any, _: Any) -> Any:
        region = self.projects[request.parent_id][0]
        return listed_platforms([preset for preset in self.presets if preset.region == region])

    def images(self, request: Any, _: Any) -> Any:
        rows = [compute.Image(spec=compute.ImageSpec(image_family=one)) for one in ("ubuntu24.04-driverless", IMAGE)]
        items, token = self._page(request, rows)
        return compute.ListImagesResponse(items=items, next_page_token=token)

    def _preset(self, project: str, resources: Any) -> Preset:
        region = self.projects.get(project, ("", ""))[0]
        for preset in self.presets:
            if (preset.region, preset.platform, preset.preset) == (region, resources.platform, resources.preset):
                return preset
        raise RefusedCall(grpc.StatusCode.INVALID_ARGUMENT, "no such preset in this region")

    # --- instances ----------------------------------------------------------------------------------------------------
    def all_instances(self, request: Any, _: Any) -> Any:
        rows = [
            self._shown(instance)
            for instance in self.instances.values()
            if instance.metadata.parent_id == request.parent_id
        ]
        items, token = self._page(request, rows)
        return compute.ListInstancesResponse(items=items, next_page_token=token)

    def instance(self, request: Any, _: Any) -> Any:
        if request.id not in self.instances:
            raise RefusedCall(grpc.StatusCode.NOT_FOUND, f"instance {request.id} not found")
        return self._shown(self.instances[request.id])

    def create(self, request: Any, metadata: dict[str, str]) -> Any:
        key = metadata.get("x-idempotency-key", "")
        if key in self._by_key:
            return _operation(self._by_key[key])
        self._check(request)
        self._number += 1
        one = f"computeinstance-e00{self._number:06d}"
        self._by_key[key] = one
        self.ready_at[one] = self.clock() + self.boots_s
        made = common.ResourceMetadata(
            id=one,
            parent_id=request.metadata.parent_id,
            name=request.metadata.name,
            labels=request.metadata.labels,
            created_at=datetime.fromtimestamp(self.clock(), UTC),
        )
        self.instances[one] = compute.Instance(metadata=made, spec=request.spec)
        return _operation(one)

    def delete(self, request: Any, _: Any) -> Any:
        if request.id not in self.instances:
            raise RefusedCall(grpc.StatusCode.NOT_FOUND, f"instance {request.id} not found")
        del self.instances[request.id]
        return _operation(request.id)

    def stop(self, request: Any, _: Any) -> Any:
        self.instance(request, _)
        self.stopped.add(request.id)
        return _operation(request.id)

    def start(self, request: Any, _: Any) -> Any:
        """Refuse what runs, and what has lost its place to another."""
        one = self.instance(request, _)
        if request.id not in self.stopped:
            raise RefusedCall(grpc.StatusCode.FAILED_PRECONDITION, "the instance is not stopped")
        preset = self._preset(one.metadata.parent_id, one.spec.resources)
        if not preset.on_demand:
            raise RefusedCall(grpc.StatusCode.RESOURCE_EXHAUSTED, "not enough resources", no_resources())
        self.stopped.discard(request.id)
        return _operation(request.id)

    def _check(self, request: Any) -> None:
        """Refuse what the vendor refuses, with its own details."""
        spec, project = request.spec, request.metadata.parent_id
        one, spot = self._preset(project, spec.resources), spec.check_presence("preemptible")
        disk, subnet = spec.boot_disk.managed_disk.spec, spec.network_interfaces[0].subnet_id
        wrong = {
            "no such image family": disk.source_image_family.image_family != IMAGE,
            "the disk is too small": disk.size_gibibytes < 40,
            "no such subnet": subnet not in {f"vpcsubnet-{name.replace('-', '')}" for name in self.subnets[project]},
            "a pricing model that does not fit": spot is not (spec.follows_spot_price is not None),
        }
        for text, is_so in wrong.items():
            if is_so:
                raise RefusedCall(grpc.StatusCode.INVALID_ARGUMENT, text)
        names = {(other.metadata.parent_id, other.metadata.name) for other in self.instances.values()}
        if (project, request.metadata.name) in names:
            raise RefusedCall(grpc.StatusCode.ALREADY_EXISTS, "an instance with this name exists")
        if (one.platform, spot) in self.at_limit:
            failure = common.QuotaFailure(violations=[common.QuotaFailure.Violation(quota="compute.instance.gpu")])
            error = common.ServiceError(service="compute", code="QuotaFailure", quota_failure=failure)
            raise RefusedCall(grpc.StatusCode.RESOURCE_EXHAUSTED, "Quota limit exceeded", error)
        machines = [
            p for p in self.presets if (p.region, p.platform, p.preset) == (one.region, one.platform, one.preset)
        ]
        if not any(p.preemptible if spot else p.on_demand for p in machines):
            raise RefusedCall(grpc.StatusCode.RESOURCE_EXHAUSTED, "not enough resources", no_resources())

    def _shown(self, one: Any) -> Any:
        states = compute.InstanceStatus.InstanceState
        booted = self.clock() >= self.ready_at[one.metadata.id]
        ready = booted and one.metadata.id not in self.stopped
        number = int(one.metadata.id[-6:])
        address = compute.PublicIPAddressStatus(address=f"203.0.113.{number}/32")
        status = compute.InstanceStatus(
            state=states.RUNNING if ready else states.STOPPED,
            reconciling=not booted,
            network_interfaces=[compute.NetworkInterfaceStatus(public_ip_address=address)] if ready else [],
        )
        return compute.Instance(metadata=one.metadata, spec=one.spec, status=status)


def no_resources() -> Any:
    """Return the vendor's own detail of a refusal without stock."""
    lacking = common.NotEnoughResources(violations=[common.NotEnoughResources.Violation(resource_type="gpu")])
    return common.ServiceError(service="compute", code="NotEnoughResources", not_enough_resources=lacking)


def _operation(instance_id: str) -> Any:
    return common.Operation(id=f"computeoperation-{instance_id[-6:]}", resource_id=instance_id)
