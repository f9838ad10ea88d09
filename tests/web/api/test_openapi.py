"""The API obeys its OpenAPI document, checked from outside by schemathesis."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.web.api.api_actions import ACTIONS
from gpuwatch.web.api.openapi import openapi
from gpuwatch.web.api.resources import ITEMS, RESOURCES
from tests.web.served import TOKEN, Served, served

CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection", "positive_data_acceptance", "unsupported_method", "ignored_auth",
)  # fmt: skip
# Each takes the same as one that is tested, and half a minute more.
LIKE_OTHERS = ("/launches/{id}/absent", "/watches/{id}/rehearse", "/unsilence", "/share/revoke", "/jobs/{id}/retry")
_ALL = 'tokens = [{ name = "t", token = "' + TOKEN + '", scopes = ["read", "approve", "manage"] }]'


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path, _ALL) as found:
        yield found


def test_every_resource_and_action_is_described() -> None:
    paths = openapi()["paths"]
    names = ("offers", "watches", "launches", "approvals", "alerts", "providers", "costs", "history", "jobs", "events")
    assert {f"/api/v1/{name}" for name in names} <= set(paths)
    assert "/api/v1/watches/{name}" in paths
    posted = {path.removeprefix("/api/v1") for path, one in paths.items() if "post" in one}
    assert posted == {action.path for action in ACTIONS} | {"/session"}


def test_every_item_and_answer_has_types_and_units() -> None:
    document = openapi()
    schemas = document["components"]["schemas"]
    for resource in RESOURCES:
        body = document["paths"][f"/api/v1/{resource.name}"]["get"]["responses"]["200"]["content"]["application/json"]
        reference = body["schema"]["properties"]["items"]["items"]["$ref"]
        described = schemas[reference.rpartition("/")[2]]
        assert set(described["properties"]) == set(resource.item.__struct_fields__)
    for item in ITEMS:
        body = document["paths"][f"/api/v1{item.path}"]["get"]["responses"]["200"]["content"]["application/json"]
        described = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        assert set(described["properties"]) == set(item.item.__struct_fields__)
    for action in ACTIONS:
        body = document["paths"][f"/api/v1{action.path}"]["post"]["responses"]["200"]["content"]["application/json"]
        described = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        assert set(described["properties"]) == set(action.answer.__struct_fields__)
    offer = schemas["OfferView"]
    assert offer["properties"]["gpu_memory_gib"]["description"] == "GiB. Of one GPU."
    assert offer["properties"]["price_usd_gpu_hour"]["description"] == "USD per GPU-hour. Commission included."
    assert {"provider", "observed_at", "reliability"} <= set(offer["required"])
    assert "also_at" not in offer["required"], "only where there is one"


def test_the_login_of_programs_answers_as_described(web: Served) -> None:
    described = openapi()["paths"]["/api/v1/session"]
    opened = web.client.post("/api/v1/session", json={"token": TOKEN})
    required = described["post"]["responses"]["200"]["content"]["application/json"]["schema"]["required"]
    assert (opened.status_code, sorted(opened.json())) == (200, sorted(required))
    closed = {token: web.client.delete("/api/v1/session", headers={"X-CSRF-Token": token}).status_code
              for token in ("wrong", opened.json()["csrf_token"])}  # fmt: skip
    assert list(closed.values()) == [403, 204]
    assert {str(status) for status in closed.values()} <= set(described["delete"]["responses"])
    wrong = web.client.post("/api/v1/session", json={"password": "wrong"})
    assert str(wrong.status_code) in described["post"]["responses"]


@pytest.mark.slow
def test_schemathesis_finds_nothing(web: Served, pytestconfig: pytest.Config) -> None:
    tables = {"HYPOTHESIS_STORAGE_DIRECTORY": str(pytestconfig.rootpath / ".hypothesis")}  # 2 s to make them anew
    done = subprocess.run(
        [
            Path(sys.executable).parent / "schemathesis", "run", f"{web.url}/api/v1/openapi.json",
            "--header", f"Authorization: Bearer {TOKEN}", "--exclude-path", "/api/v1/events",
            "--exclude-path", "/api/v1/session",  # wrong passwords are slowed
            *(word for path in LIKE_OTHERS for word in ("--exclude-path", f"/api/v1{path}")),
            "--checks", ",".join(CHECKS), "--max-examples", "20", "--seed", "1",
            "--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all", "--no-color",
            "--generation-database", "none",
        ],
        env=os.environ | tables, cwd=web.folder, capture_output=True, text=True, timeout=570, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
