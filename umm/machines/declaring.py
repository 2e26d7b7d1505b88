"""Declare the tables of a machine file for pydantic, which is imported once a file is read.

A class that extends :class:`Table` has its fields, rules and methods, and costs no more than that. pydantic
asks it for its schema where content is validated, and makes objects of it.
"""

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import get_annotations
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, get_type_hints


class Later:
    """One of pydantic's annotations, made once it is needed: limits of a field, its default, its meaning."""

    __is_annotated_types_grouped_metadata__ = True  # pydantic iterates over such a one

    def __init__(self, name: str, *args: Any, **settings: Any) -> None:
        self.name, self.args, self.settings = name, args, settings
        self.alias, self.description = settings.get("alias"), settings.get("description")

    def __iter__(self) -> Iterator[Any]:
        import pydantic

        yield getattr(pydantic, self.name)(*self.args, **self.settings)

    @property
    def default(self) -> Any:
        """The default value of a field, ``...`` if it has none."""
        factory = self.settings.get("default_factory")
        return factory() if factory else self.args[0] if self.args else self.settings.get("default", ...)


if TYPE_CHECKING:
    from pydantic import AfterValidator as AfterValidator
    from pydantic import BaseModel
    from pydantic import BeforeValidator as BeforeValidator
    from pydantic import Field as Field
    from pydantic import model_validator as model_validator

    class Table(BaseModel):
        """The one below, to a checker of types."""

else:
    Field, AfterValidator, BeforeValidator = (
        partial(Later, name) for name in ("Field", "AfterValidator", "BeforeValidator")
    )

    def model_validator(*, mode: str) -> Callable[[Any], Any]:
        """Return a decorator of a rule of a table whose values are right one by one."""

        def mark(function: Any) -> Any:
            function.is_rule = mode == "after"
            return function

        return mark

    class Table:
        """A table of the file: unknown keys are errors, and no value is taken for one of another type."""

        def __init__(self, **values: Any) -> None:
            _adapter(type(self)).validator.validate_python(values, self_instance=self)

        @classmethod
        def model_validate(cls, content: Any) -> Self:
            """Return the table that content is."""
            return _adapter(cls).validate_python(content)

        @classmethod
        def model_construct(cls, **values: Any) -> Self:
            """Return a table of values that need no check."""
            made = object.__new__(cls)
            for name, field in fields_of(cls).items():
                made.__dict__[name] = values.get(name, copy.copy(field.default))
            return made

        @classmethod
        def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
            return _schema(cls, handler)

        # pydantic sets three attributes of an object beside its values: only one of them says anything.
        __pydantic_extra__ = __pydantic_private__ = __pydantic_fields_set__ = property(None, lambda *_: None)

        @property
        def model_fields_set(self) -> set[str]:
            """The fields that are not their defaults."""
            fields = fields_of(type(self))
            return {name for name, x in vars(self).items() if x != fields[name].default}

        def model_copy(self, *, update: dict[str, Any]) -> Self:
            """Return the same with other values of some fields."""
            made = copy.copy(self)
            made.__dict__.update(update)
            return made

        def model_dump(self) -> dict[str, Any]:
            """Return it as plain values."""
            return json.loads(self.model_dump_json())

        def model_dump_json(self) -> str:
            """Return it as JSON."""
            return json.dumps(self, default=vars, ensure_ascii=False, separators=(",", ":"))

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and vars(self) == vars(other)

        def __hash__(self) -> int:
            return hash((type(self), *vars(self).values()))

        def __repr__(self) -> str:
            return f"{type(self).__name__}({', '.join(f'{name}={x!r}' for name, x in vars(self).items())})"


@cache
def fields_of(table: type[Table]) -> dict[str, Later]:
    """Return the fields of a table by name, those of its bases first."""
    hints = {name: x for base in reversed(table.__mro__) for name, x in get_annotations(base).items()}
    values = {name: getattr(table, name, ...) for name, x in hints.items() if "ClassVar" not in str(x)}
    return {name: x if isinstance(x, Later) else Later("Field", x) for name, x in values.items()}


@cache
def hints_of(table: type[Table]) -> dict[str, Any]:
    """Return the types of a table's fields by name, with their limits."""
    return get_type_hints(table, include_extras=True)


_made: set[type] = set()
"""The tables whose schema the one that is being made has already."""
_making = Lock()


@cache
def _adapter(table: type[Table]) -> Any:
    """Return pydantic's validator of a table."""
    from pydantic import TypeAdapter

    with _making:
        _made.clear()
        return TypeAdapter(table)


def _schema(table: type[Table], handler: Any) -> Any:
    """Return the schema of a table: its fields, then its rules."""
    from pydantic_core import core_schema

    ref = f"{table.__module__}.{table.__qualname__}:{id(table)}"
    if table in _made:
        return core_schema.definition_reference_schema(ref)
    _made.add(table)
    fields = {}
    for name, field in fields_of(table).items():
        schema = handler.generate_schema(hints_of(table)[name])
        if field.default is not ...:
            schema = core_schema.with_default_schema(schema, default=field.default)
        fields[name] = core_schema.model_field(schema, validation_alias=field.alias)
    schema = core_schema.model_schema(
        table,
        core_schema.model_fields_schema(fields, model_name=table.__name__),
        config={"extra_fields_behavior": "forbid", "strict": True, "allow_inf_nan": False},
    )
    rules = {name: x for base in reversed(table.__mro__) for name, x in vars(base).items()}
    for rule in rules.values():
        if getattr(rule, "is_rule", False):
            schema = core_schema.no_info_after_validator_function(rule, schema)
    return {**schema, "ref": ref}
