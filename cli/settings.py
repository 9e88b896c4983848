"""NAME=VALUE settings of a topic, as options take them."""

from typing import Any

import click
import msgspec

from ..client.model import TopicConfig

FIELDS = {field.name: field for field in msgspec.structs.fields(TopicConfig)}

SETTINGS_HELP = (
    "A setting of the topic; repeat it for several. "
    + ", ".join(
        f"{name} ({'none' if field.default is None else msgspec.json.encode(field.default).decode()})"
        for name, field in FIELDS.items()
    )
    + ". In brackets: the default. Times are milliseconds, -1 means unlimited."
)


class SettingType(click.ParamType[tuple[str, Any]]):
    """One setting, checked against the fields of TopicConfig."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Any]:
        """The name and the typed value."""
        name, found, text = str(value).partition("=")
        field = FIELDS.get(name)
        if not found or field is None:
            self.fail(f"{value!r} is not NAME=VALUE with one of {', '.join(FIELDS)}", param, ctx)
        wanted = None if text == "none" and field.default is None else text
        try:
            return name, msgspec.convert(wanted, field.type, strict=False)
        except msgspec.ValidationError as error:
            self.fail(f"{name}: {error}", param, ctx)
