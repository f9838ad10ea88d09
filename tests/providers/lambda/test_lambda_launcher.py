"""Lambda's requests and answers: each call on the wire, and what each refusal means."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import httpx
import msgspec
import pytest
import respx

from gpuwatch.errors import (
    OfferGone,
    OrderRateLimited,
    OrderRefused,
    OutcomeUnknown,
    PayloadChanged,
    RefusalKind,
)
from gpuwatch.ports import Created, InstanceState, Order, Query
from gpuwatch.ports.declarations import Adapter
from gpuwatch.testing.suite import case
from tests.checkout import TESTS
from tests.sent_requests import sent

BENCH = import_module("tests.providers.lambda.bench").BENCH
RECORDED = TESTS / "recorded" / "lambda"
URL = "https://cloud.lambda.ai/api/v1"
LAUNCH, TERMINATE = "/instance-operations/launch", "/instance-operations/terminate"
ID = "0920582c7ff041399e34823a0be62549"  # of the recorded answers
pytestmark = pytest.mark.respx(base_url=URL)


def recorded(name: str) -> Any:
    return json.loads((RECORDED / f"{name}.json").read_bytes())


@pytest.fixture
def adapter() -> Iterator[Adapter]:
    with BENCH.pointed_at(URL) as adapter:
        yield adapter


@pytest.fixture
def launcher(adapter: Adapter) -> Any:
    return adapter.launcher


def an_order(**values: Any) -> Order:
    plain = {"offer_id": "gpu_1x_h100_sxm5/us-east-1", "label": "gpuwatch-abc", "image": "x/y", "disk_gb": 20.0}
    return Order(**(plain | values))


# --- what is read -----------------------------------------------------------------------------------------------------


def test_offers_are_one_request_with_the_key_in_a_header(respx_mock: respx.MockRouter, adapter: Adapter) -> None:
    types = respx_mock.get("/instance-types").respond(json=recorded("instance-types-regions-shape-2026-08-15"))
    assert [offer.offer_id for offer in adapter.market.search(Query()).offers] == [
        "gpu_1x_a100_sxm4/us-east-1",
        "gpu_1x_a100_sxm4/us-west-2",
        "gpu_1x_gh200/us-east-3",
        "gpu_8x_a100_80gb_sxm4/us-east-1",
    ]
    assert sent(types.calls) == [("GET", "/api/v1/instance-types", None)]
    assert types.calls.last.request.headers["authorization"] == "Bearer demo-key"


def test_the_list_is_one_request_without_pages(respx_mock: respx.MockRouter, launcher: Any) -> None:
    listed = respx_mock.get("/instances").respond(json=recorded("instances-list-reconstructed"))
    found = launcher.list_instances()
    assert sent(listed.calls) == [("GET", "/api/v1/instances", None)]
    assert [(one.instance_id, one.state) for one in found][:2] == [
        (ID, InstanceState.RUNNING),
        (ID, InstanceState.STARTING),
    ]
    assert (found[0].ssh_host, found[0].ssh_user, found[0].listed_usd_hour) == ("198.51.100.2", "ubuntu", 15.92)


def test_one_instance_is_asked_for_by_its_id(respx_mock: respx.MockRouter, launcher: Any) -> None:
    shown = respx_mock.get(f"/instances/{ID}").respond(json=recorded("instance-booting-reconstructed"))
    found = launcher.get(ID)
    assert sent(shown.calls) == [("GET", f"/api/v1/instances/{ID}", None)]
    assert (found.instance_id, found.state, found.ssh_host) == (ID, InstanceState.STARTING, None)


def test_only_the_code_says_that_an_instance_is_gone(respx_mock: respx.MockRouter, launcher: Any) -> None:
    errors = recorded("errors-spec")
    answers = [errors[name] for name in ("ApiErrorInstanceNotFound", "ApiErrorNotFound")]
    respx_mock.get(f"/instances/{ID}").mock(
        side_effect=[httpx.Response(one["http_status"], json=one["body"]) for one in answers]
    )
    assert launcher.get(ID) is None
    with pytest.raises(PayloadChanged):
        launcher.get(ID)


def test_the_ssh_key_of_the_settings_is_looked_up(respx_mock: respx.MockRouter, launcher: Any) -> None:
    keys = respx_mock.get("/ssh-keys").mock(side_effect=[
        httpx.Response(200, json={"data": [{"id": "1", "name": "my-key", "public_key": "ssh-ed25519 AAAA"}]}),
        httpx.Response(200, json={"data": []}),
    ])  # fmt: skip
    assert [[one.met for one in launcher.prerequisites([an_order()])] for _ in range(2)] == [[True], [False]]
    assert sent(keys.calls) == [("GET", "/api/v1/ssh-keys", None)] * 2


# --- launches ---------------------------------------------------------------------------------------------------------


def test_an_order_is_one_machine_with_the_label_in_name_and_tag(respx_mock: respx.MockRouter, launcher: Any) -> None:
    launched = respx_mock.post(LAUNCH).respond(json=recorded("launch-200"))
    assert launcher.create(an_order()) == Created(instance_id=ID)
    body = {
        "region_name": "us-east-1",
        "instance_type_name": "gpu_1x_h100_sxm5",
        "ssh_key_names": ["my-key"],
        "name": "gpuwatch-abc",
        "tags": [{"key": "gpuwatch", "value": "gpuwatch-abc"}],
    }
    assert sent(launched.calls) == [("POST", f"/api/v1{LAUNCH}", body)]
    assert body.keys() <= {*recorded("launch-request-reconstructed"), "image"}


def test_variables_and_start_commands_are_user_data(respx_mock: respx.MockRouter, launcher: Any) -> None:
    launched = respx_mock.post(LAUNCH).respond(json=recorded("launch-200"))
    launcher.create(an_order(onstart="nvidia-smi", env={"TOKEN": "s3cret"}))
    [(_, _, body)] = sent(launched.calls)
    assert body.pop("user_data").startswith("#!/bin/bash\n")
    assert "s3cret" not in str(body)


@pytest.mark.parametrize(
    ("image", "reported"),
    [
        ("lambda-stack-24-04", {"family": "lambda-stack-24-04"}),
        ("43336648-096d-4cba-9aa2-f9bb7727639d", {"id": "43336648-096d-4cba-9aa2-f9bb7727639d"}),
    ],
)
def test_the_image_of_the_options_is_a_family_or_an_id(
    respx_mock: respx.MockRouter, image: str, reported: dict[str, str]
) -> None:
    launched = respx_mock.post(LAUNCH).respond(json=recorded("launch-200"))
    with msgspec.structs.replace(BENCH, options={"ssh_key": "my-key", "image": image}).pointed_at(URL) as adapter:
        adapter.launcher.create(an_order())
    assert sent(launched.calls)[0][2]["image"] == reported


def test_without_an_ssh_key_nothing_is_sent_and_the_line_to_add_is_named() -> None:
    keyless = msgspec.structs.replace(BENCH, options={})
    line = r'ssh_key = "NAME" to \[providers.lambda.options\]'
    with keyless.pointed_at(URL) as adapter, pytest.raises(OrderRefused, match=line) as refused:
        adapter.launcher.create(an_order())
    assert refused.value.kind is RefusalKind.BAD_ORDER


def test_what_does_not_fit_is_refused_and_not_sent(launcher: Any) -> None:
    for wish in ({"label": "gpuwatch-" + "x" * 60}, {"onstart": "x" * 1_000_000}, {"offer_id": "gpu_1x_h100_sxm5"}):
        with case(next(iter(wish))), pytest.raises(OrderRefused, match="nothing was sent") as refused:
            launcher.create(an_order(**wish))
        assert refused.value.kind is RefusalKind.BAD_ORDER


def an_error(code: str, message: str = "no") -> dict[str, Any]:
    return {"error": {"code": code, "message": message}}


@pytest.mark.parametrize(
    ("status", "body", "error", "kind"),
    [
        (400, recorded("errors-spec")["ApiErrorInsufficientCapacity"]["body"], OfferGone, None),
        (400, recorded("errors-spec")["ApiErrorQuotaExceeded"]["body"], OrderRefused, RefusalKind.OTHER),
        (400, recorded("errors-spec")["ApiErrorInvalidParameters"]["body"], OrderRefused, RefusalKind.BAD_ORDER),
        (401, recorded("errors-spec")["ApiErrorUnauthorized"]["body"], OrderRefused, RefusalKind.KEY),
        (403, recorded("errors-spec")["ApiErrorAccountInactive"]["body"], OrderRefused, RefusalKind.NO_CREDIT),
        (403, recorded("errors-spec")["ApiErrorInvalidBillingAddress"]["body"], OrderRefused, RefusalKind.NO_CREDIT),
        (503, recorded("error-provider-unavailable-spec"), OutcomeUnknown, None),
        (503, an_error("instance-operations/launch/insufficient-capacity"), OutcomeUnknown, None),
        (
            400,
            an_error("instance-operations/launch/file-system-in-wrong-region"),
            OrderRefused,
            RefusalKind.BAD_ORDER,
        ),
        (400, an_error("global/object-does-not-exist", "Specified instance type does not exist."), OfferGone, None),
        (
            400,
            an_error("global/object-does-not-exist", "Specified SSH key does not exist."),
            OrderRefused,
            RefusalKind.BAD_ORDER,
        ),
        (409, an_error("global/duplicate"), OrderRefused, RefusalKind.OTHER),
        (429, an_error("global/too-many-requests"), OrderRateLimited, None),
    ],
)
def test_a_refusal_is_understood_by_its_code_and_sent_once(
    respx_mock: respx.MockRouter,
    launcher: Any,
    status: int,
    body: Any,
    error: type[Exception],
    kind: RefusalKind | None,
) -> None:
    launched = respx_mock.post(LAUNCH).respond(status, json=body)
    with pytest.raises(error) as refused:
        launcher.create(an_order())
    assert getattr(refused.value, "kind", None) is kind
    assert launched.call_count == 1


@pytest.mark.parametrize(("header", "wait_s"), [({}, 12.0), ({"retry-after": "30"}, 30.0)])
def test_too_many_launches_wait_as_long_as_the_answer_says_or_as_launches_are_apart(
    respx_mock: respx.MockRouter, launcher: Any, header: dict[str, str], wait_s: float
) -> None:
    respx_mock.post(LAUNCH).respond(429, headers=header)
    with pytest.raises(OrderRateLimited) as limited:
        launcher.create(an_order())
    assert limited.value.retry_after_s == wait_s


@pytest.mark.parametrize(
    ("ids", "named"), [([], None), (["1f", "2f"], "1f"), (["1f", None], "1f"), ([17], None), ("1f", None)]
)
def test_a_launch_that_does_not_name_one_instance_is_an_open_outcome(
    respx_mock: respx.MockRouter, launcher: Any, ids: Any, named: str | None
) -> None:
    respx_mock.post(LAUNCH).respond(json={"data": {"instance_ids": ids}})
    with pytest.raises(OutcomeUnknown) as unknown:
        launcher.create(an_order())
    assert unknown.value.instance_id == named


# --- the end ----------------------------------------------------------------------------------------------------------


def test_an_end_names_the_instance_and_is_confirmed_by_it(respx_mock: respx.MockRouter, launcher: Any) -> None:
    ended = respx_mock.post(TERMINATE).respond(json=recorded("terminate-200-spec-example"))
    launcher.destroy(ID)
    assert sent(ended.calls) == [("POST", f"/api/v1{TERMINATE}", {"instance_ids": [ID]})]
    with pytest.raises(OutcomeUnknown):
        launcher.destroy("another")


def test_what_is_gone_is_ended(respx_mock: respx.MockRouter, launcher: Any) -> None:
    gone = recorded("errors-spec")["ApiErrorInstanceNotFound"]
    respx_mock.post(TERMINATE).respond(gone["http_status"], json=gone["body"])
    launcher.destroy(ID)


@pytest.mark.parametrize("answer", [b"", b"{}", b"<html>", b'{"data": [{"id": "1'])
def test_an_end_that_is_not_confirmed_has_an_open_outcome(
    respx_mock: respx.MockRouter, launcher: Any, answer: bytes
) -> None:
    ended = respx_mock.post(TERMINATE).respond(200, content=answer)
    with pytest.raises(OutcomeUnknown):
        launcher.destroy(ID)
    assert ended.call_count == 1


def test_a_wrong_path_is_no_proof_of_an_end(respx_mock: respx.MockRouter, launcher: Any) -> None:
    respx_mock.post(TERMINATE).respond(404, json=recorded("errors-spec")["ApiErrorNotFound"]["body"])
    with pytest.raises(OrderRefused):
        launcher.destroy(ID)
