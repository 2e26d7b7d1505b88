"""Types that weights are stored in, as ``quantization_config`` says: bits, scales, and which modules stay."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Any, NamedTuple

from umm.errors import ProblemError
from umm.files import shown
from umm.program.models.layers import Model

_BITS = {"float32": 32.0, "bfloat16": 16.0, "float16": 16.0}
MAX_PATTERNS, MAX_STARRED = 100_000, 1000
"""Modules that a list names, and those with stars, which are joined into one expression."""
_PREFIX = re.compile(r"^(model\.|language_model\.|backbone\.|transformer\.|decoder\.)+")
_MODULES = {  # what several families call a part
    "self_attn": ("self_attn", "attn", "attention", "mixer"),
    "linear_attn": ("linear_attn", "self_attn", "mixer"),
    "mamba": ("mixer", "mamba"),
    "mlp": ("mlp", "ffn", "feed_forward", "block_sparse_moe", "moe", "mixer"),
}


class Stored(NamedTuple):
    """A type that weights are stored in."""

    name: str  # as `--weights` names it, or bits and the elements of a scale
    bits: float  # bits of an element, with its share of a scale


def _stored(bits: int, kind: str, group: int) -> Stored:
    """Return a type of some bits whose scales are for groups of elements, 0 for one a tensor."""
    if kind == "float" and bits == 4:
        # nvfp4: a scale of 8 bits for 16; mxfp4: one of 8 bits for 32.
        return Stored("nvfp4", 4.5) if group == 16 else Stored("mxfp4", 4.25)
    if kind == "float" and bits == 8:
        return Stored("float8_e4m3:128", 8 + 32 / 128**2) if group == 128 else Stored("float8_e4m3", 8.0)
    return Stored(f"int{bits}", bits + (16 / group if group > 0 else 0.0))


_ALGORITHMS = {
    "NVFP4": _stored(4, "float", 16),
    "W4A16_NVFP4": _stored(4, "float", 16),
    "NVFP4_AWQ": _stored(4, "float", 16),
    "MXFP4": _stored(4, "float", 32),
    "W4A8_MXFP4_FP8": _stored(4, "float", 32),
    "FP8": _stored(8, "float", 0),
    "FP8_PB_WO": _stored(8, "float", 128),
    "FP8_PER_CHANNEL_PER_TOKEN": _stored(8, "float", 0),
    "W4A16_AWQ": _stored(4, "int", 128),
    "W4A8_AWQ": _stored(4, "int", 128),
    "W8A8_SQ_PER_CHANNEL": _stored(8, "int", 0),
    "W8A16": _stored(8, "int", 0),
}
_QUARK = {
    "fp4": _stored(4, "float", 32),
    "fp8_e4m3": _stored(8, "float", 0),
    "int8": _stored(8, "int", 0),
    "int4": _stored(4, "int", 128),
}


@dataclass(frozen=True)
class Rule:
    """A type, and the modules that have it."""

    stored: Stored | None  # The type; None for those that stay in the type of the checkpoint.
    modules: frozenset[str] = frozenset()  # their names
    patterns: re.Pattern[str] | None = None  # What matches their paths; None if names alone say.

    def matches(self, path: str) -> bool:
        """Whether a module of a path has it: by a pattern, or by a name that is a part of the path."""
        if self.patterns and self.patterns.match(path):
            return True
        words = path.split(".") if self.modules else []
        ends = range(1, len(words) + 1)
        return any(".".join(words[i:j]) in self.modules for j in ends for i in range(j))


class Quantization:
    """The types of a model's weights, by its ``quantization_config``.

    ProblemError naming the key that cannot be read.
    """

    def __init__(self, model: Model) -> None:
        self.usual = Stored(model.dtype, _BITS.get(model.dtype, 16.0))
        self.rules, self.default = _rules(model.quantization)
        # Gemma 4 and Grok-2 have experts beside an MLP, not in it.
        self.beside = any(x.experts and len(x.expansions) > 1 for x in model.layers)

    def stored(self, module: str, linear: bool = True, layer: int | None = None) -> Stored:
        """Return the type of a module's weights.

        Args:
            module: Path below its layer, or outside all layers.
            linear: Whether it is a matrix that can have few bits.
            layer: Number of its layer; None outside all.
        """
        if not linear or (not self.rules and self.default is None):
            return self.usual
        part, _, rest = module.partition(".")
        names = [f"{x}.{rest}" if rest else x for x in _MODULES.get(part, (part,))]
        if self.beside and rest == "experts":
            names = ["experts", "block_sparse_moe.experts"]
        paths = names if layer is None else [f"layers.{layer}.{x}" for x in names]
        for rule in self.rules:
            if any(map(rule.matches, paths)):
                return rule.stored or self.usual
        if module == "lm_head" or self.default is None:  # a head is quantised where it is named alone
            return self.usual
        return self.default

    @property
    def main(self) -> Stored:
        """The type of the weights that multiply, as far as one has most of them."""
        return self.default or next((x.stored for x in self.rules if x.stored), self.usual)


def check_quantization(config: Any, path: str) -> dict[str, str]:
    """Return a remark where ``quantization_config`` is not understood.

    ProblemError if it is no object, or a key of it cannot be read.
    """
    if not isinstance(config, dict):
        raise ProblemError(f"quantization_config of {path} is {shown(config)}; it must be an object")
    if not config:
        return {}
    method = config.get("quant_method") or config.get("quant_algo")
    try:
        rules, default = _rules(config)
    except ProblemError as error:
        raise ProblemError(f"quantization_config of {path}: {error}") from None
    if not rules and default is None:
        remark = f"method {shown(method)} is not understood; weights keep the type of the rest"
        return {"quantization_config": remark}
    return {}


def cache_bits(config: Mapping[str, Any]) -> int:
    """Return the bits of an element of the cache; 0 where a checkpoint does not say."""
    scheme = config.get("kv_cache_scheme")
    bits = scheme.get("num_bits") if isinstance(scheme, dict) else None
    if type(bits) is int and bits in (4, 8, 16):
        return bits
    return 8 if config.get("kv_cache_quant_algo") == "FP8" else 0


def _rules(config: Mapping[str, Any]) -> tuple[list[Rule], Stored | None]:
    """Return which modules have which type, the first that matches, and the type of other matrices."""
    rules: list[Rule] = []
    expert = {"fp4": _stored(4, "float", 32), "fp8": _stored(8, "float", 128)}.get(
        str(config.get("expert_dtype"))
    )
    method, algorithm = config.get("quant_method"), config.get("quant_algo")
    stays = [
        name
        for key in (
            "ignore",
            "modules_to_not_convert",
            "ignored_layers",
            "exclude_modules",
            "exclude",
            "llm_int8_skip_modules",
        )
        for name in _names(config, key)
    ]
    if stays:
        rules.append(_rule(None, stays))
    layers = config.get("quantized_layers")
    if isinstance(layers, dict):
        by_type: dict[Stored, list[str]] = {}
        for name, how in layers.items():
            stored = _ALGORITHMS.get(str(how.get("quant_algo"))) if isinstance(how, dict) else None
            if stored is None:
                raise ProblemError(f"quantized_layers has {shown(how)} for {shown(name)}")
            by_type.setdefault(stored, []).append(name)
        # What is named has its type, whatever a list of patterns leaves out.
        rules = [*(_rule(stored, names) for stored, names in by_type.items()), *rules]
    if expert is not None and not isinstance(layers, dict):
        rules.append(_rule(expert, ["experts"]))
    groups = config.get("config_groups")
    default = _of_method(config, method)
    if isinstance(groups, dict) and not isinstance(layers, dict):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, dict) else None
            if not isinstance(weights, dict):
                raise ProblemError(f"config_groups has {shown(group)}, without weights")
            bits, group_size = weights.get("num_bits"), weights.get("group_size")
            if type(bits) is not int or not 1 <= bits <= 16:
                raise ProblemError(f"num_bits of weights is {shown(bits)}; it must be 1 to 16")
            size = 128 if weights.get("strategy") == "block" else group_size
            stored = _stored(bits, str(weights.get("type") or "int"), size if type(size) is int else 0)
            targets = _names(group, "targets")
            if not targets or "Linear" in targets:
                default = stored
            else:
                rules.append(_rule(stored, targets))
    elif isinstance(algorithm, str) and algorithm != "MIXED_PRECISION":
        default = _ALGORITHMS.get(algorithm, default)
    if method == "mxfp4":  # gpt-oss: of its experts alone
        rules.append(_rule(default, ["experts"]))
        default = None
    return rules, default


def _of_method(config: Mapping[str, Any], method: Any) -> Stored | None:
    """Return the type that a method gives all matrices; None where it names single ones or is unknown."""
    size = config.get("group_size")
    group = size if type(size) is int else 128
    bits = config.get("bits")
    match method:
        case "fp8" | "fbgemm_fp8":
            return _stored(8, "float", 128 if config.get("weight_block_size") else 0)
        case "mxfp4":
            return _stored(4, "float", 32)
        case "gptq" | "awq" | "gptq_marlin" | "awq_marlin" | "auto-round":
            bits = bits if bits in (2, 3, 4, 8) else 4
            # A scale of 16 bits and a zero for each group, also where zeros are alike.
            return Stored(f"int{bits}", bits + ((16 + bits) / group if group > 0 else 0.0))
        case "quark":  # AMD's
            usual = config.get("global_quant_config")
            weight = usual.get("weight") if isinstance(usual, dict) else None
            return _QUARK.get(str(weight.get("dtype"))) if isinstance(weight, dict) else None
        case "bitsandbytes":
            if not config.get("load_in_4bit"):
                return _stored(8, "int", 0)
            # A scale of 32 bits for 64 elements, or one of 8 bits, of which 256 share one of 32.
            return Stored(
                "int4", 4 + ((8 + 32 / 256) / 64 if config.get("bnb_4bit_use_double_quant") else 0.5)
            )
    return None


def _names(config: Mapping[str, Any], key: str) -> list[str]:
    names = config.get(key) or []
    if not isinstance(names, list) or len(names) > MAX_PATTERNS or not all(isinstance(x, str) for x in names):
        raise ProblemError(f"{key} is {shown(names)}; it must be a list of modules")
    return names


def _rule(stored: Stored | None, names: Iterable[str]) -> Rule:
    """Return the rule of some modules, by name, by ``*`` or by a simple regular expression."""
    modules, patterns = set[str](), list[str]()
    for name in names:
        if name.startswith("re:"):
            patterns.append(_simple(name.removeprefix("re:")))
        elif "*" in name:
            if name.count("*") > 4:
                raise ProblemError(f"{shown(name)} has more than 4 stars")
            bare = _PREFIX.sub("", name)
            # A module stands for those below it.
            patterns += [translate(bare), *([] if bare.endswith("*") else [translate(f"{bare}.*")])]
        else:
            modules.add(_PREFIX.sub("", name))
    if len(patterns) > MAX_STARRED:
        raise ProblemError(f"{len(patterns)} patterns of modules are more than {MAX_STARRED}")
    joined = re.compile("|".join(f"(?:{x})" for x in patterns)) if patterns else None
    return Rule(stored, frozenset(modules), joined)


def _simple(pattern: str) -> str:
    r"""Return a regular expression without nested repetition; others, which may backtrack, are refused."""
    # Without their prefixes paths begin at `layers`, so `^` and `model\.` at its beginning go.
    pattern = re.sub(r"^\^?(\(?model\\?\.\)?)?", "", pattern)
    bare = pattern.replace(".*", "").replace("\\d+", "")
    if re.search(r"[*+{?]", bare) or pattern.count(".*") > 4 or len(pattern) > 1000:
        raise ProblemError(f"{shown(pattern)} is not a simple pattern of modules")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ProblemError(f"{shown(pattern)} is not a pattern: {error}") from None
    return pattern
