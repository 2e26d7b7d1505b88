"""Declare the tables of a machine file as pydantic's models; pydantic is imported once a file is read.

A class that extends :class:`BaseModel` here has its fields, rules and methods, and costs no more than that.
The model of the same declaration is made where content is validated; what comes back has the class declared.
"""

import copy
import json
from collections.abc import Callable
from functools import cache
from inspect import get_annotations
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, Union, cast, get_args, get_origin


class Later:
    """A call of one of pydantic's functions, made once a model is."""

    def __init__(self, name: str, *args: Any, **settings: Any) -> None:
        self.name, self.args, self.settings = name, args, settings
        self.function: Callable[..., Any] | None = None

    def __call__(self, function: Callable[..., Any]) -> "Later":
        """Return the call, as a decorator of a rule."""
        self.function = function
        return self

    def made(self) -> Any:
        """Return the result of the function."""
        import pydantic

        result = getattr(pydantic, self.name)(*self.args, **self.settings)
        return result if self.function is None else result(self.function)

    @property
    def default(self) -> Any:
        """The default value of a field."""
        factory = self.settings.get("default_factory")
        return factory() if factory else self.args[0] if self.args else self.settings.get("default")


if TYPE_CHECKING:
    from pydantic import BaseModel as BaseModel
    from pydantic import BeforeValidator as BeforeValidator
    from pydantic import Field as Field
    from pydantic import field_validator as field_validator
    from pydantic import model_validator as model_validator
else:

    def Field(*args: Any, **settings: Any) -> Later:  # noqa: N802, pydantic's name
        """Return the limits, the default or the meaning of a field."""
        return Later("Field", *args, **settings)

    def BeforeValidator(function: Callable[..., Any]) -> Later:  # noqa: N802, pydantic's name
        """Return a function of a value as it is written."""
        return Later("BeforeValidator", function)

    def field_validator(*names: str, **settings: Any) -> Later:
        """Return a decorator of a rule of some fields."""
        return Later("field_validator", *names, **settings)

    def model_validator(**settings: Any) -> Later:
        """Return a decorator of a rule of a table."""
        return Later("model_validator", **settings)

    class _Tables(type):
        @property
        def model_fields(cls) -> Any:
            return model_of(cls).model_fields

        def __call__(cls, **values: Any) -> Any:
            return _declared(model_of(cls)(**_modelled(values)))

    class BaseModel(metaclass=_Tables):
        """A table whose values were checked."""

        @classmethod
        def model_validate(cls, content: Any) -> Self:
            """Return the table that content is."""
            return _declared(model_of(cls).model_validate(content))

        @classmethod
        def model_construct(cls, **values: Any) -> Self:
            """Return a table of values that need no check."""
            made = object.__new__(cls)
            for name in _names(cls):
                usual = getattr(cls, name, None)
                usual = usual.default if isinstance(usual, Later) else copy.copy(usual)
                made.__dict__[name] = values.get(name, usual)
            return made

        @classmethod
        def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
            return handler.generate_schema(model_of(cls))  # of a field whose type is the name of a table

        def model_copy(self, *, update: dict[str, Any]) -> Self:
            """Return the same with other values of some fields."""
            made = copy.copy(self)
            made.__dict__.update(update)
            return made

        def model_dump(self) -> dict[str, Any]:
            """Return it as plain values."""
            return {name: _dumped(getattr(self, name)) for name in _names(type(self))}

        def model_dump_json(self) -> str:
            """Return it as JSON."""
            return json.dumps(self.model_dump(), ensure_ascii=False, separators=(",", ":"))

        def _values(self) -> list[Any]:
            return [getattr(self, name) for name in _names(type(self))]

        def __eq__(self, other: object) -> bool:
            return type(self) is type(other) and self._values() == other._values()

        def __hash__(self) -> int:
            return hash((type(self), *self._values()))

        def __repr__(self) -> str:
            pairs = zip(_names(type(self)), self._values(), strict=True)
            return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


_DECLARED: dict[type, type[BaseModel]] = {}
"""The class that a model was made of."""


@cache
def model_of(table: type[BaseModel]) -> Any:
    """Return pydantic's model of a table that is declared here."""
    if table is BaseModel:
        import pydantic

        return pydantic.BaseModel
    values = {
        name: value.made() if isinstance(value, Later) else value
        for name, value in vars(table).items()
        if name not in ("__dict__", "__weakref__") and not name.startswith("__annot")
    }
    values["__annotations__"] = {name: _real(hint) for name, hint in get_annotations(table).items()}
    bases = tuple(model_of(cast(type[BaseModel], base)) for base in table.__bases__)
    model = type(bases[0])(table.__name__, bases, values)
    _DECLARED[model] = table
    return model


def _real(hint: Any) -> Any:
    """Return a type hint with models in place of tables, and pydantic's objects."""
    if isinstance(hint, Later):
        return hint.made()
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return model_of(hint)
    origin = cast(Any, get_origin(hint))
    args = get_args(hint)
    if hasattr(hint, "__metadata__"):  # of Annotated
        return Annotated[tuple(map(_real, args))]
    if not args or origin in (Literal, ClassVar):
        return hint
    made = tuple(map(_real, args))
    return Union[made] if origin in (Union, UnionType) else origin[made]  # noqa: UP007, of a tuple


def _declared(value: Any) -> Any:
    """Return a value with tables in place of models."""
    table = _DECLARED.get(type(value))
    if table is not None:
        made = object.__new__(table)
        made.__dict__.update({name: _declared(x) for name, x in vars(value).items()})
        return made
    if isinstance(value, list | tuple):
        return type(value)(map(_declared, value))
    return {key: _declared(x) for key, x in value.items()} if isinstance(value, dict) else value


def _modelled(value: Any) -> Any:
    """Return a value with models in place of tables, whose values were checked."""
    if isinstance(value, BaseModel):
        return model_of(type(value)).model_construct(**_modelled(vars(value)))
    if isinstance(value, list | tuple):
        return type(value)(map(_modelled, value))
    return {key: _modelled(x) for key, x in value.items()} if isinstance(value, dict) else value


def _dumped(value: Any) -> Any:
    """Return a value with plain ones in place of tables."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, list | tuple):
        return type(value)(map(_dumped, value))
    return {key: _dumped(x) for key, x in value.items()} if isinstance(value, dict) else value


@cache
def _names(table: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields of a table, those of its bases first."""
    names = {
        name: None
        for base in reversed(table.__mro__)
        for name, hint in get_annotations(base).items()
        if not (str(hint).startswith("typing.ClassVar") or name.startswith("model_"))
    }
    return tuple(names)
