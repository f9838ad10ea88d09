"""A provider's options, as the settings validate them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from gpuwatch.ports.declarations import OptionSpec
from gpuwatch.settings.plugin_options import options_table, values_in
from gpuwatch.settings.settings_errors import validation_errors


def read_options(specs: Sequence[OptionSpec], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return every option, the default for what is wrong, and the key and text of each error."""
    table = options_table(specs)
    try:
        return values_in(table.model_validate(given)), []
    except ValidationError as error:
        faults = [(str(loc[-1]), text) for loc, text in validation_errors(error, table)]
    return {spec.name: spec.default for spec in specs}, faults
