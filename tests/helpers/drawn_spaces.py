"""Random programs on random machines, and points of their spaces that a search might never simulate."""

from typing import NamedTuple

import umm
from umm.errors import UmmError
from umm.space import Space
from umm.space.pricing.assignments import AssignmentPricer
from umm.space.pricing.multiplies import pricer_of

MACHINES = (
    ("h100-8", 2, 1), ("h100-8", 4, 1), ("h100-8", 8, 1), ("b200-8", 4, 1), ("a100-8", 8, 1),
    ("pvc-12", 4, 1), ("pvc-12", 6, 1), ("mi300x-8", 4, 1), ("tpu-v5e-4", 4, 1), ("localhost", 3, 1),
    ("a100-2x4", 8, 2), ("h800-8", 16, 2), ("dgx-h100x4", 16, 2),
)  # fmt: skip
"""Names, ranks, nodes."""
SERVING = (
    ("h100-8", 1, 1), ("b200-8", 1, 1), ("mi300x-8", 1, 1), ("a100-8", 1, 1), ("h100-8", 2, 1),
    ("b200-8", 4, 1), ("a100-2x4", 8, 2),
)  # fmt: skip
"""Those that decode, one rank alone among them."""
CHAINS = (
    "moe", "moe", "moe", "moe-layer", "mlp", "gated-mlp", "attention", "attention-stored",
    "transformer-layer", "embedding", "head",
)  # fmt: skip
MOST_ACTIONS = 6_000
"""Actions of the largest point that is simulated."""


class Drawn(NamedTuple):
    """A point of a space.

    Attributes:
        words: What it is.
        pricer: Of a few points of the space, this one among them.
        place: Which.
    """

    words: str
    pricer: AssignmentPricer
    place: tuple[int, ...]


def drawn_chain(rng, name, dtype):
    """Return a random preset of small sizes, and words for it."""
    sizes = {"tokens": rng.choice((48, 64, 256, 1024)), "hidden": rng.choice((64, 128, 256, 512))}
    more = {"backward": name != "embedding" and rng.random() < 0.4}
    if name in ("moe", "moe-layer"):
        experts = rng.choice((3, 4, 8, 16))
        top = rng.choice([x for x in (1, 2, 4) if x <= experts])
        sizes |= {"ffn": rng.choice((64, 128, 512)), "experts": experts, "top_k": top}
        sizes |= rng.choice(({}, {}, {"shared": 1}))
        more["routing"] = rng.choice(("uniform", "balanced", "zipf:1.2"))
    elif name in ("embedding", "head"):
        sizes["vocab"] = rng.choice((256, 1000))
    elif name in ("mlp", "gated-mlp", "transformer-layer"):
        sizes["ffn"] = rng.choice((128, 512))
    if "attention" in name or "layer" in name:
        sizes |= rng.choice(({"heads": 4}, {"heads": 8}, {"heads": 8, "kv_heads": 4}, {"sequences": 4}))
        sizes.setdefault("heads", 4)
    if name in ("attention", "transformer-layer", "moe-layer") and rng.random() < 0.2:
        sizes |= {"batch": sizes.pop("tokens") // 4, "context": rng.choice((16, 100))}
        sizes.pop("sequences", None)
        more |= {"decode": True, "backward": False}
    if dtype == "bfloat16" and not more["backward"] and rng.random() < 0.2:
        more["weights"] = rng.choice(("fp8", "fp8", "int8", "int4", "fp4"))
    return umm.chain(name, dtype=dtype, **sizes, **more), f"{name} {dtype} {sizes | more}"


def drawn_decode(rng):
    """Return a random decode step as wide as a model's, its weights in few bits, and words for it."""
    name = rng.choice(("transformer-layer", "transformer-layer", "attention", "moe-layer"))
    heads = rng.choice((16, 32, 64, 80))
    sizes = {"hidden": 64 * heads, "heads": heads, "kv_heads": rng.choice((heads, heads // 2, heads // 8))}
    sizes |= {"batch": rng.choice((1, 8, 32, 128)), "context": rng.choice((64, 1024))}
    if name != "attention":
        sizes["ffn"] = rng.choice((1024, 2048, 14336, 28672))
    if name == "moe-layer":
        sizes |= {"experts": 8, "top_k": 2}
    more = {"decode": True, "weights": rng.choice(("int4", "int4", "fp4", "int8", "fp8"))}
    return umm.chain(name, dtype="bfloat16", **sizes, **more), f"{name} bfloat16 {sizes | more}"


def drawn_machine(rng, machines=MACHINES):
    """Return a random machine, with one slow device now and then, how many ranks, and words for it."""
    name, ranks, nodes = rng.choice(machines)
    apart = {"device.1.peak": "x0.5"} if name != "localhost" and rng.random() < 0.1 else {}
    machine = umm.machine(name, apart, nodes=nodes if nodes > 1 else None)
    return machine, ranks, f"{name} {apart or ''} of {ranks} ranks"


def drawn_point(rng, chains=CHAINS, decode=False) -> Drawn | None:
    """Return a random point; None where the machine has not the type, or the tensors no such layouts.

    Args:
        chains: Names of presets to draw from.
        decode: Whether to draw a decode step of :func:`drawn_decode` instead.
    """
    machine, ranks, where = drawn_machine(rng, SERVING if decode else MACHINES)
    dtype = rng.choice([x for x in ("float32", "bfloat16", "float16") if x in machine.peaks])
    name = rng.choice(chains)
    how = {
        "movement": rng.choice(("auto", "auto", "flat", "gathered", "chunks")),
        "stationary": rng.choice(("auto", "best")),
        "prefetch": rng.choice((0, 1, 2)),
    }
    usual = rng.choice((None, None, ("row", "2d"), ("row", "col", "2d", "row@p"), ("all",)))
    try:
        outline, what = drawn_decode(rng) if decode else drawn_chain(rng, name, dtype)
        layouts = None if usual is None else tuple(x.replace("@p", f"@{ranks}") for x in usual)
        wide = Space(chain=outline, ranks=ranks, layouts=layouts).searched.over(machine).points()
        some = {
            names[0]: tuple(rng.sample(choices, min(len(choices), rng.choice((1, 1, 2)))))
            for names, choices in zip(wide.groups, wide.choices, strict=True)
        }
        inputs = [x.name for x in outline.tensors if x.role == "input" and not x.experts]
        if inputs and rng.random() < 0.15:
            outline = outline.with_given({rng.choice(inputs): rng.choice(("row", "col", f"row@{ranks}"))})
        space = Space(chain=outline, ranks=ranks, layouts=some, **how).searched
        pricer = pricer_of(space.on(ranks).over(machine), machine)
    except UmmError:
        return None
    place = tuple(rng.randrange(count) for count in pricer.tables.shape)
    words = f"{what} on {where}, {how}, given {dict(outline.given)}, {pricer.points.layouts(place)}"
    return Drawn(words, pricer, place) if pricer.actions(place) <= MOST_ACTIONS else None
