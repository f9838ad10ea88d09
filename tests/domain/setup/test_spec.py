"""Values whose keys are declared on their fields, and the tables that owners write for them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest
from pydantic import TypeAdapter, ValidationError

from gpuwatch.domain.setup.fields import (
    Key,
    Line,
    Measure,
    Span,
    Spec,
    Whole,
    about,
    is_duration,
    keys_of,
    models_in,
    table_of,
    table_with,
)


class DoorKeys:
    """Keys that `Door` holds by other fields."""

    height_mm: Annotated[Whole, about("Height in millimetres.", ge=1)] = 2000


class Hinge(Spec, frozen=True, kw_only=True):
    """A hinge."""

    load_kg: Annotated[Measure, about("Load that it carries.")] = 80.0


class Door(Spec, frozen=True, kw_only=True):
    """A door."""

    Keys = DoorKeys

    name: Annotated[Line, about("Name of the door.")]
    height_m: float = 2.0
    open_for_s: Annotated[Span, about("How long it stays open.")] = 5.0
    width_m: Annotated[Measure, Key("width"), about("Width in metres.")] = 0.9
    hinge: Annotated[Hinge, about("What carries it.")] = Hinge()

    @classmethod
    def computed(cls, table: Any) -> dict[str, Any]:
        """The height in metres."""
        if table.height_mm / 1000 < table.width:
            raise ValueError("expected a door that is higher than wide")
        return {"height_m": table.height_mm / 1000}


DOORS = TypeAdapter(Door)


def test_a_table_becomes_the_value_itself() -> None:
    found = DOORS.validate_python({"name": "back", "height_mm": 2100, "open_for": "1m", "hinge": {"load_kg": 90}})
    assert found == Door(name="back", height_m=2.1, open_for_s=60.0, hinge=Hinge(load_kg=90.0))


def test_keys_stand_in_the_order_of_their_declaration() -> None:
    """A key that no field holds stands where the first computed field stands."""
    assert list(keys_of(table_of(Door))) == ["name", "height_mm", "open_for", "width", "hinge"]


def test_the_program_makes_a_value_without_validation() -> None:
    assert msgspec.structs.replace(Door(name=""), open_for_s=0.5).open_for_s == 0.5


@pytest.mark.parametrize(
    ("table", "loc", "text"),
    [
        ({"name": "a", "height_m": 2}, ("height_m",), "Extra inputs"),
        ({"name": "a", "open_for_s": "5s"}, ("open_for_s",), "Extra inputs"),
        ({"name": "a", "open_for": 5}, ("open_for",), "expected a duration in quotes"),
        ({"name": "a", "hinge": {"load_kg": -1}}, ("hinge", "load_kg"), "greater than or equal to 0"),
        ({"name": "a", "width": 3}, (), "higher than wide"),
        ({}, ("name",), "Field required"),
    ],
)
def test_a_fault_names_the_key_that_was_written(table: dict[str, Any], loc: tuple[str, ...], text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        DOORS.validate_python(table)
    (fault,) = caught.value.errors()
    assert fault["loc"] == loc
    assert text in fault["msg"]


def test_a_key_says_whether_it_is_a_duration_or_a_table() -> None:
    keys = keys_of(table_of(Door))
    assert [key for key, field in keys.items() if is_duration(field)] == ["open_for"]
    assert [key for key, field in keys.items() if models_in(field.annotation)] == ["hinge"]


def test_a_table_may_have_other_defaults() -> None:
    found = table_with(Door, {"width": 1.2}).model_validate({"name": "front"})
    assert Door.of(found, height_m=2.5) == Door(name="front", width_m=1.2, height_m=2.5)


def test_json_schema_has_the_help_the_bounds_and_the_defaults() -> None:
    schema = table_of(Door).model_json_schema()
    assert schema["properties"]["height_mm"]["description"] == "Height in millimetres."
    assert schema["properties"]["width"] == {
        "default": 0.9, "description": "Width in metres.", "minimum": 0, "title": "Width", "type": "number",
    }  # fmt: skip
    assert schema["properties"]["hinge"]["default"] == {"load_kg": 80.0}
    assert schema["required"] == ["name"]
