"""Which answers of each provider mean that an instance is gone: only an explicit one, never just a 404."""

from __future__ import annotations

from importlib import import_module

import pytest

from gpuwatch.errors import ProviderError
from gpuwatch.ports import Instance, InstanceLookup, InstanceState
from gpuwatch.testing.relay import relaying

LAMBDA_ID = "0920582c7ff041399e34823a0be62549"
MACHINE = "468b716a-0000-4000-8000-000000000001"
EC2 = "us-east-1/i-0123456789abcdef0"


def ec2_error(code: str) -> bytes:
    return b"<Response><Errors><Error><Code>%b</Code><Message>m</Message></Error></Errors></Response>" % code.encode()


def ec2_row(state: str) -> bytes:
    row = f"<instanceId>i-0123456789abcdef0</instanceId><instanceState><name>{state}</name></instanceState>"
    inner = f"<item><instancesSet><item>{row}</item></instancesSet></item>"
    return f"<DescribeInstancesResponse><reservationSet>{inner}</reservationSet></DescribeInstancesResponse>".encode()


GONE = [
    ("lambda", LAMBDA_ID, 404, b'{"error": {"code": "global/object-does-not-exist", "message": "m"}}'),
    ("lambda", LAMBDA_ID, 200, b'{"data": {"id": "%b", "status": "terminated"}}' % LAMBDA_ID.encode()),
    ("shadeform", "a-1", 200, b'{"id": "a-1", "status": "deleted"}'),
    ("tensordock", MACHINE, 404, b'{"error": "Instance not found"}'),
    ("tensordock", MACHINE, 200, b'{"error": "Instance not found", "status": 404}'),
    ("tensordock", MACHINE, 200, b'{"id": "%b", "name": "x", "status": "deleted"}' % MACHINE.encode()),
    ("aws", EC2, 400, ec2_error("InvalidInstanceID.NotFound")),
    ("aws", EC2, 200, ec2_row("terminated")),
]
NOT_SAID = [
    ("lambda", LAMBDA_ID, 404, b'{"error": {"code": "global/not-found", "message": "The path does not exist"}}'),
    ("lambda", LAMBDA_ID, 403, b'{"error": {"code": "global/object-does-not-exist", "message": "m"}}'),
    ("lambda", LAMBDA_ID, 200, b'{"data": {"id": "another", "status": "terminated"}}'),
    ("shadeform", "a-1", 404, b'{"error_code": "NOT_FOUND", "error": "Not found"}'),
    ("shadeform", "a-1", 404, b'{"error_code": "NOT_FOUND", "error": "Instance not found"}'),
    ("shadeform", "a-1", 404, b"404: instance not found"),
    ("shadeform", "a-1", 200, b'{"id": "a-2", "status": "deleted"}'),
    ("shadeform", "a-1", 200, b'{"error": "Instance not found"}'),
    ("tensordock", MACHINE, 404, b"<html>not found</html>"),
    ("tensordock", MACHINE, 404, b'{"error": "No such route"}'),
    ("tensordock", MACHINE, 200, b'{"error": "Instance not found"}'),
    ("tensordock", MACHINE, 200, b'{"id": "%b", "name": "x"}' % MACHINE.encode()),
    ("aws", EC2, 401, ec2_error("InvalidInstanceID.NotFound")),
    ("aws", EC2, 400, ec2_error("InvalidInstanceID.Malformed")),
    ("aws", EC2, 403, ec2_error("UnauthorizedOperation")),
    ("aws", EC2, 200, ec2_row("terminated").replace(b"i-0123", b"i-9999")),
    ("aws", EC2, 200, b"<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"),
]


def answered(name: str, instance_id: str, status: int, body: bytes) -> Instance | None:
    bench = import_module(f"tests.providers.{name}.bench").BENCH
    with bench.place() as place, relaying(place.url) as relay, bench.pointed_at(relay.url) as adapter:
        assert isinstance(adapter.launcher, InstanceLookup)
        relay.fail("", status, body)
        return adapter.launcher.get(instance_id)


@pytest.mark.parametrize(("name", "instance_id", "status", "body"), GONE)
def test_the_providers_own_word_is_gone(name: str, instance_id: str, status: int, body: bytes) -> None:
    found = answered(name, instance_id, status, body)
    assert found is None or found.state is InstanceState.ENDED


@pytest.mark.parametrize(("name", "instance_id", "status", "body"), NOT_SAID)
def test_whatever_says_less_is_an_error(name: str, instance_id: str, status: int, body: bytes) -> None:
    with pytest.raises(ProviderError):
        answered(name, instance_id, status, body)
