"""Texts that mean something: quantities, dimensions, layouts, the words of frameworks, settings."""

import math
import re
from fractions import Fraction
from random import Random

from fuzz.judged import REFUSED, TAKEN, tried
from fuzz.strings import changed_text, odd_text
from umm.layouts.frameworks.mesh import holdings
from umm.layouts.layout import Layout
from umm.machines import machine
from umm.program.problem import Problem
from umm.space.budget import bytes_of_budget
from umm.units import parse_bandwidth, parse_bytes, parse_dimension, parse_rate, parse_seconds

PARSERS = {
    parse_bandwidth: ("450 GB/s", "1e-3 TB/s", "7B/s"), parse_bytes: ("16GiB", "64 GB", "1.5KiB", "8192"),
    parse_dimension: ("48K", "8192", "1 M"), parse_rate: ("22.7 Tflop/s", "1e12 flop/s"),
    parse_seconds: ("3 us", "1e-6 s", ".5 ns", "7 µs"),
}  # fmt: skip
SCALES = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
SCALES |= {x + "i": 2**y for x, y in (("K", 10), ("M", 20), ("G", 30), ("T", 40))}
TIMES = {
    "s": 1,
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "ns": Fraction(1, 10**9),
}
NUMBER = r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
LAYOUTS = (
    "row", "col", "2d", "2d:2x3", "2d:3x2:balanced@2:interleaved", "cyclic:2x3:1x2@2",
    "edges:0-3-8x0-5-6:2x1",
    "2d@2x2x2:r-c", "row@2:0-2-1-3", "2d:colmajor", "col:balanced",
)  # fmt: skip
FOREIGN = (
    "shard(0)", "dtensor:mesh=2x3;Shard(0),Replicate",
    "dtensor:mesh=2x2:0-2-1-3;Shard(1),_StridedShard(0,split_factor=2)",
    "jax:mesh=x:2,y:3;P(x,y)", "jax:mesh=x:2,y:2;P((y,x),None)", "jax:mesh=x:4@0-2-1-3;P(None,x)",
    "scalapack:desc=1,0,8,6,2,3,1,0,4;grid=2x3;order=R", "hpf:(BLOCK,*)", "hpf:(CYCLIC(2),BLOCK);2x3",
    "Replicate",
)  # fmt: skip

DIMENSIONS = {
    "": 1, "k": 1024, "K": 1024, "Ki": 1024, "M": 1024**2, "Mi": 1024**2, "G": 1024**3, "Gi": 1024**3
}  # fmt: skip


def quantity(random: Random, _folder: object) -> str:
    """A size, a rate, a time or a budget is the number that exact arithmetic makes of it."""
    parse = random.choice(list(PARSERS))
    text = changed_text(
        random, random.choice(PARSERS[parse if random.random() < 0.8 else random.choice(list(PARSERS))])
    )
    if random.random() < 0.1:
        text = changed_text(random, random.choice(("2x", "1.5 x", "1e-2x", "16GiB")))
        limit, _ = tried(lambda: bytes_of_budget(text, 12288))
        match = re.fullmatch(NUMBER + r"\s*x", text.strip())
        if limit is not None and match:
            assert abs(limit - math.floor(Fraction(match[1]) * 12288)) <= 1 + limit // 2**48, (text, limit)
        return REFUSED if limit is None else TAKEN
    value, refusal = tried(lambda: parse(text))
    if refusal is not None:
        return REFUSED
    match = re.fullmatch(NUMBER + r"\s*(\S*)", text.strip())
    assert match, text
    if re.search(r"[eE][+-]?[0-9]{5}", match[1]):
        return TAKEN  # as 0 by any float; exact arithmetic would take for ever
    unit, number = match[2], Fraction(match[1])
    if parse is parse_seconds:
        meant = number * TIMES[unit]
    elif parse is parse_dimension:
        meant = number * DIMENSIONS[unit]
    else:
        bare = unit.removesuffix({parse_bandwidth: "B/s", parse_bytes: "B", parse_rate: "flop/s"}[parse])
        meant = number * SCALES[bare]
    close = abs(Fraction(value) - meant) <= abs(meant) * Fraction(1, 10**12) + (
        Fraction(1, 2) if parse is parse_bytes else 0
    )
    assert close or abs(meant) < 1e-300, (text, value)
    return TAKEN


def layout(random: Random, _folder: object) -> str:
    """A layout that is taken covers every element once in each replica, and its text gives it back."""
    text = changed_text(random, random.choice(LAYOUTS if random.random() < 0.7 else FOREIGN))
    shape, ranks = (random.choice((1, 6, 8, 7)), random.choice((1, 6, 5))), random.choice((1, 2, 4, 6, 8))
    result, refusal = tried(lambda: Layout.parse(text, shape, ranks))
    if refusal is not None:
        tried(lambda: Layout.check_text(text))
        return REFUSED
    assert result.shape == shape, text
    assert result.ranks == ranks, text
    assert int(result.elements_of_rank.sum()) == shape[0] * shape[1] * result.replicas, text
    assert Layout.parse(str(result), shape, ranks) == result, (text, str(result))
    if random.random() < 0.3:
        words = random.choice(("dtensor", "jax", "scalapack", "hpf"))
        output, _ = tried(lambda: str(result.said_in(words)))
        if output is not None:
            # What a rank holds is said; a framework has no tiles within it.
            assert holdings(Layout.parse(output, shape, ranks)) == holdings(result), (text, output)
    return TAKEN


def setting(random: Random, _folder: object) -> str:
    """A machine with a number set to another has that number, and says so in its name."""
    pairs = {
        "fabric.bandwidth": "225GB/s",
        "memory": "40 GB",
        "fabric*": "x2",
        "peak.float32": "1 Tflop/s",
        "devices.count": "4",
    }
    key = random.choice(list(pairs))
    value = changed_text(random, pairs[key] if random.random() < 0.6 else "x0.5", 1)
    key = changed_text(random, key, 1)
    name = random.choice(("h100-8", "pvc-12", "h100-8:tf32", "localhost", "h100-8", odd_text(random)))
    result, refusal = tried(lambda: machine(name, {key: value}))
    if refusal is not None:
        return REFUSED
    again = machine(result.name) if result.name != name else result
    assert again == result, (name, key, value)
    return TAKEN


def given(random: Random, _folder: object) -> str:
    """Where operands are given is read back from its own text."""
    text = changed_text(
        random, random.choice(("a=row", "a=row,c=col@2", "a=jax:mesh=x:2,y:2;P(x,y),b=row", "b=2d c=row"))
    )
    result, refusal = tried(lambda: Problem(m=8, n=6, k=4, given=text, ranks=4))
    if refusal is not None:
        return REFUSED
    assert Problem(m=8, n=6, k=4, given=result.given, ranks=4) == result, text
    return TAKEN
