"""Chains in files: one named when the page was started, others dropped in; read as if somebody meant harm."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from umm.errors import InputError
from umm.explorer.chains.state import ChainState
from umm.explorer.uploads import text_of
from umm.files import shown
from umm.program import Outline
from umm.program.files import parse_chain
from umm.program.presets import chain

Texts = Mapping[str, str]
MOST_BYTES = 128 * 1024
MOST_PARTS = 200
"""Tensors of a chain, and statements, that are searched for a page: three layers, forward and backward."""


def outline_of(state: ChainState, texts: Texts) -> Outline:
    """Return the chain that a state asks for, before it is laid out.

    Args:
        state: The state.
        texts: Of the files that are there, by name.

    Raises:
        InputError: if its sizes do not fit together, its file is not there, or is not a chain.
    """
    if not state.of_file:
        asked: dict[str, Any] = {**state.sizes, **state.named}
        outline = chain(state.chain, **asked)
    elif state.chain in texts:
        outline = chain_of(texts[state.chain], state.chain)
    else:
        raise InputError(f"the file {shown(state.chain)} is not here; drop it in, or choose another chain")
    return outline.with_given(state.given) if state.given else outline


@lru_cache(maxsize=32)
def chain_of(text: str, name: str) -> Outline:
    """Return the chain that the text of a file holds.

    Raises:
        InputError: if it holds none, or one too large for the page.
    """
    if len(text) > MOST_BYTES:
        raise InputError(f"{name}: {len(text)} characters are too many for a chain; {MOST_BYTES} are read")
    outline = parse_chain(text, name)
    most = max(len(outline.tensors), len(outline.statements))
    if most > MOST_PARTS:
        raise InputError(
            f"{name} has {len(outline.statements)} statements on {len(outline.tensors)} tensors; the page "
            f"takes up to {MOST_PARTS} of each, umm search --chain any number"
        )
    return outline


def dropped_chain(filename: str, content: bytes) -> tuple[str, str]:
    """Return the name and the text of a file that was dropped in.

    Raises:
        InputError: if it does not hold a chain.
    """
    name = Path(filename).name
    if not name.isprintable() or not name.endswith(".toml") or not 5 < len(name) <= 40:
        raise InputError("give the chain's file a plain name, such as layer.toml")
    text = text_of(content, name, "a chain")
    chain_of(text, name)
    return name, text
