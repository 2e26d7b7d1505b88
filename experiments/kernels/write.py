"""The part of a machine file that has laws by engine, and where it is put."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.kernels.allreduces import OwnKernels
from experiments.kernels.chips import ENGINES
from experiments.kernels.collectives import Form, Ways
from experiments.kernels.multiplies import Law
from umm.machines.kernels import Issue
from umm.machines.rules import Rule

TITLES = {"pytorch": "PyTorch", "xla": "XLA"}
SUBMITTED = (
    'value = "1.5 us", source = "no host submits a transfer of a graph: all-reduces by an engine\'s kernels '
    'take 2.6 us in all on H100, latencies of links among them", range = ["0.5 us", "3 us"], assumed = true'
)
HEAD = "# Kernels by engine, which --kernels and --eager choose: fitted by python -m experiments kernels"
ATTENTION = "# Attention by engine: fitted by python -m experiments kernels --kinds attention"
EXPERTS = "# Experts by engine: fitted by python -m experiments kernels --kinds experts"
EXCHANGE = "# DeepEP by engine: fitted by python -m experiments kernels --kinds exchange"
HEADS = (HEAD, ATTENTION, EXPERTS, EXCHANGE)
SERVING_TIMES = ("start", "ramp", "split", "token", "sequence", "expert", "column", "merge", "swap")
SERVING_RATES = ("memory", "write", "feed", "first", "cached", "again", "passes", "block")
RATED = {"bfloat16": "bfloat16", "fp8": "float8", "fp8_block": "float8:128", "nvfp4": "float4"}
RATES = ("feed", "store", "memory", "reduce", "cast", "cast_unit")
TIMES = ("start", "ramp", "split", "cast_row", "boost")
TABLE = "AIConfigurator's measured tables (ai-dynamo/aiconfigurator, August 2026)"


def rate(value: float) -> str:
    """Return bytes/s as a file writes them.

    >>> rate(2.849e12), rate(4.56e10)
    ('2.85 TB/s', '45.6 GB/s')
    """
    value = min(value, 1e15)
    return f"{value / 1e12:.3g} TB/s" if value >= 1e12 else f"{value / 1e9:.3g} GB/s"


def time(value: float) -> str:
    """Return seconds as a file writes them.

    >>> time(2.567e-6), time(6.36e-9)
    ('2.57 us', '0.00636 us')
    """
    return f"{value * 1e6:.3g} us"


def efficiency(
    engine: str, dtype: str, law: Law, source: str, units: int, issues: Sequence[Issue] = ()
) -> str:
    """Return the table of an engine's multiplies of one type."""
    numbers = law.numbers
    lines = [
        f"[[engines.{engine}.efficiency]]",
        f'dtype = "{RATED[dtype]}"',
        f'source = "{source}"',
        f"value = {numbers['value']:.3g}",
        f"uncertainty = {min(1.0, law.error):.2g}",
        "measured = true",
        "",
        f"[engines.{engine}.efficiency.kernels]",
        'source = "fitted with value"',
        f"units = {units}",
        "tiles = [" + ", ".join(f'"{r}x{c}"' for r, c in law.form.tiles) + "]",
        f"splits = {list(law.form.splits)}",
    ]
    for name, value in numbers.items():
        if name in RATES:
            lines.append(f'{name} = "{rate(value)}"')
        elif name in TIMES:
            lines.append(f'{name} = "{time(value)}"')
        elif name != "value":
            lines.append(f"{name} = {value:.3g}")
    if law.form.coarse:
        lines.append(f"coarse = {law.form.coarse}")
    if law.form.rules:
        lines.append(f"rules = [{', '.join(map(_rule, law.form.rules))}]")
    if issues:
        lines.append(f"issues = [{', '.join(map(_issue, issues))}]")
    return "\n".join([*lines, "measured = true", ""])


def _rule(rule: Rule) -> str:
    rows, cols = rule.tile
    limits = {x: value for x, value in vars(rule).items() if x != "tile" and value}
    return "{ " + ", ".join([f'tile = "{rows}x{cols}"', *(f"{x} = {y}" for x, y in limits.items())]) + " }"


def _issue(issue: Issue) -> str:
    parts = [f'time = "{time(issue.time)}"']
    if issue.rows:
        parts.append(f"rows = {issue.rows}")
    if issue.unless_rows:
        parts.append(f"unless_rows = {issue.unless_rows}")
    if issue.unless:
        parts.append(f"unless = {list(issue.unless)}")
    return "{ " + ", ".join(parts) + " }"


def pace(key: str, form: Form, numbers: Mapping[str, float], width: float, source: str, error: float) -> str:
    """Return the table of one way of a collective."""
    lines = [f"[{key}]"]
    for name, value in numbers.items():
        text = f"{min(value, 4.0):.3g}" if name == "link" else None
        if name in ("blocks", "peer"):
            text = f'"{rate(value * width)}"'
        elif text is None:
            text = f'"{time(value)}"'
        per = ', per = "rank"' if name in ("blocks", "peer") else ""
        result = source if name == "start" else "fitted with start"
        known = f'source = "{result}"{per}, uncertainty = {error:.2g}, measured = true'
        lines.append(f"{name} = {{ value = {text}, {known} }}")
    if form.hides:
        lines.append('steps = "pieces"')
    if form.path != "ring":
        lines.append(f'path = "{form.path}"')
    return "\n".join(lines)


def library(version: str, ways: Sequence[Ways], width: float, sources: str) -> str:
    """Return the tables of a library of collectives."""
    parts = [f'[libraries.nccl]\nname = "NCCL"\nversion = "{version}"\n']
    for result in ways:
        large, small = result.errors
        source = f"{sources}; rows not fitted are off by {large:.0%} from 1 MiB on, {small:.0%} below"
        for form, numbers in zip(result.forms, result.numbers, strict=True):
            text = pace(f"libraries.nccl.{result.what}.{form.name}", form, numbers, width, source, large)
            if form.large:
                assert result.message is not None
                text += _size("message", result.message)
            parts.append(text + "\n")
    return "\n".join(parts)


def own(engine: str, kernels: OwnKernels, width: float, source: str) -> str:
    """Return the tables of an engine's all-reduces."""
    source = f"{source}; rows not fitted are off by {kernels.error:.0%}"
    parts = []
    for name, numbers in kernels.numbers.items():
        form = Form(name, numbers, "everything" if name == "one-shot" else "ring")
        text = pace(f"engines.{engine}.all_reduces.{name}", form, numbers, width, source, kernels.error)
        parts.append(text + _size("largest", kernels.largest) + "\n")
    return "\n".join(parts)


def _size(name: str, nbytes: float) -> str:
    return f'\n{name} = {{ value = "{nbytes / 2**10:.0f} KiB", source = "fitted with start" }}'


def head(
    engine: str,
    version: str,
    launch: float | None = None,
    collectives: str | None = "nccl",
    source: str = TABLE,
    issue: float | None = None,
) -> str:
    """Return the first lines of an engine's part."""
    title = f"{TITLES.get(engine, ENGINES.get(engine))} {version}".strip()
    lines = [f"[engines.{engine}]", f'name = "{title}"', f'source = "{source}"']
    if collectives:
        lines.append(f'collectives = "{collectives}"')
    if launch is not None:
        known = 'source = "start of a multiply in a CUDA graph, fitted with its kernels", measured = true'
        lines.append(f'launch = {{ value = "{time(launch)}", {known} }}')
        lines.append(f"transfer_overhead = {{ {SUBMITTED} }}")
    if issue is not None:
        known = (
            f'source = "median of its all-reduces up to 256 KiB without graphs in {TABLE}", measured = true'
        )
        lines.append(f'issue = {{ value = "{time(issue)}", {known} }}')
    return "\n".join([*lines, ""])


def serving(engine: str, kind: str, numbers: Mapping[str, Any], source: str, error: float) -> str:
    """Return the table of an engine's attention or experts.

    >>> print(serving("vllm", "decode", {"head": [64], "start": [8e-6], "tail": 0.5}, "a test", 0.08))
    [[engines.vllm.decode]]
    source = "a test"
    head = [64]
    start = ["8 us"]
    tail = 0.5
    uncertainty = 0.08
    measured = true
    <BLANKLINE>
    """
    lines = [f"[[engines.{engine}.{kind}]]", f'source = "{source}"']
    lines += [f"{name} = {_value(name, value)}" for name, value in numbers.items()]
    return "\n".join([*lines, f"uncertainty = {min(1.0, error):.2g}", "measured = true", ""])


def _value(name: str, value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_value(name, x) for x in value)}]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if name in SERVING_TIMES:
        return f'"{time(value)}"'
    if name in SERVING_RATES:
        return f'"{rate(value)}"'
    if name == "l2":
        return f'"{value / 1e6:.3g} MB"'
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def put(path: Path, text: str, head: str = HEAD) -> None:
    """Put laws by engine into a machine file, below their line, in the place of those it has."""
    before, _, rest = path.read_text(encoding="utf-8").partition(head)
    others = [rest.index(x) for x in HEADS if x != head and x in rest]
    after = rest[min(others) :] if others else ""
    content = "\n\n".join(x.strip() for x in (before, head, text, after) if x.strip())
    path.write_text(content + "\n", encoding="utf-8")
