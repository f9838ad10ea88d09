"""`[providers.aws.options]`: errors are reported when the settings are read, not by AWS at the first rent."""

from __future__ import annotations

from typing import Any

from gpuwatch import providers
from gpuwatch.testing.suite import case
from tests.providers.declared_options import read_options

INFO = providers.info("aws")


def test_what_aws_calls_its_places_is_taken() -> None:
    cases: list[Any] = [
        {"regions": ["us-east-1", "eu-central-1", "ap-southeast-2", "us-gov-west-1", "mx-central-1"]},
        {"list_regions": ["il-central-1"]},
        {"subnets": ["us-east-1a=subnet-0123456789abcdef0", "us-west-2-lax-1a=subnet-1"]},
        {"security_groups": ["us-east-1=sg-0123456789abcdef0"]},
    ]
    for given in cases:
        with case(given):
            values, faults = read_options(INFO.options, given)
            assert faults == []
            assert {name: list(values[name] or ()) for name in given} == given  # type: ignore[arg-type]


def test_what_is_no_place_is_a_fault_of_one_line() -> None:
    cases: list[Any] = [
        ("regions", ["us-east-1a"], "not 'us-east-1a'"),
        ("regions", ["virginia"], "not 'virginia'"),
        ("list_regions", ["evil.example.org/us-east-1"], "such as us-east-1"),
        ("subnets", ["subnet-1"], "expected place=id"),
        ("security_groups", ["us-east-1="], "expected place=id"),
    ]
    for key, value, words in cases:
        with case((key, value, words)):
            _, faults = read_options(INFO.options, {key: value})
            assert [name for name, _ in faults] == [key]
            assert words in faults[0][1]


def test_the_defaults_keep_the_rules() -> None:
    defaults = {spec.name: spec.default for spec in INFO.options if spec.default is not None}
    values, faults = read_options(INFO.options, defaults)
    assert faults == []
    assert values["regions"] == ("us-east-1", "us-east-2", "us-west-2")
