"""Models that people run: a config.json as layers of each kind, and their parameters."""

from collections.abc import Collection
from os import PathLike
from pathlib import Path

from umm.errors import ProblemError, did_you_mean, expect
from umm.files import MOST_TOML, read_json
from umm.program.models.config import model_of
from umm.program.models.layers import Layer, Model
from umm.program.models.public import PUBLIC
from umm.quoting.terminal import in_lines

__all__ = ["PUBLIC", "Layer", "Model", "find_model", "model_of"]


def find_model(name: str | Model, ignore: Collection[str] = ()) -> Model:
    """Return a model by its name, or that of a file ``config.json``.

    InputError in one line, for an unknown name, or a file that is refused by the name of a key.

    Args:
        name: One of :data:`PUBLIC`, or the path of a file; a model that was read comes back as it is.
        ignore: Keys to read without, although they may change its layers.

    >>> len(find_model("llama-3-70b").layers)
    80
    """
    if isinstance(name, Model):
        return name
    expect(name, (str, PathLike), "model", "a name such as llama-3-8b, or the path of a config.json")
    if name in PUBLIC:
        return model_of(PUBLIC[name], name, ignore)
    if Path(name).suffix != ".json":
        hint = did_you_mean(name, PUBLIC)
        hint = hint if hint.startswith("did") else "'umm models' lists those there are, or name a config.json"
        raise ProblemError(f"there is no model {name!r}; {hint}")
    return model_of(in_lines(read_json(name, "config.json", MOST_TOML)), name, ignore)
