"""Random problems: primes, one rank, more ranks than rows, every constructor, every replication."""

from hypothesis import strategies as st

from umm import Problem

SIZES = st.one_of(st.sampled_from([1, 2, 3, 5, 7, 11, 13, 17, 31]), st.integers(1, 40))


@st.composite
def grids(draw, places):
    """A process grid with exactly this many places."""
    rows = draw(st.sampled_from([d for d in range(1, places + 1) if places % d == 0]))
    return rows, places // rows


@st.composite
def layout_texts(draw, shape, ranks, replicas=None):
    """The text form of any layout that fits the shape and the ranks, with as many replicas as told."""
    if replicas is None:
        replicas = draw(st.sampled_from([c for c in range(1, ranks + 1) if ranks % c == 0]))
    kind = draw(st.sampled_from(["row", "col", "2d", "2d:", "cyclic:", "edges:"]))
    places = ranks // replicas
    rows, cols = {"row": (places, 1), "col": (1, places)}.get(kind) or draw(grids(places))
    grid = f"{rows}x{cols}"
    where = draw(st.sampled_from(["blocked", "interleaved", "mesh", "listed"]))
    if kind in ("row", "col", "2d"):
        text = kind
    elif kind == "2d:":
        text = f"2d:{grid}"
    elif kind == "cyclic:":
        text = f"cyclic:{draw(st.integers(1, 16))}x{draw(st.integers(1, 16))}:{grid}"
    else:
        edges = "x".join(draw(edge_texts(size)) for size in shape)
        text = f"edges:{edges}:{grid}"
    if "2d" in kind or ":" not in kind:
        text += draw(st.sampled_from(["", ":balanced"]))
    if where == "mesh":
        return f"{text}@{draw(meshes(replicas, rows, cols))}"
    if where == "listed":
        return f"{text}@{replicas}:{'-'.join(map(str, draw(st.permutations(range(ranks)))))}"
    colmajor = draw(st.sampled_from(["", ":colmajor"]))
    return f"{text}{colmajor}@{replicas}" + {"blocked": "", "interleaved": ":interleaved"}[where]


@st.composite
def meshes(draw, replicas, rows, cols):
    """A mesh of ranks whose axes make so many replicas, grid rows and grid columns, in any order."""
    axes = []
    for use, places in (("-", replicas), ("r", rows), ("c", cols)):
        inner = draw(st.sampled_from([d for d in range(1, places + 1) if places % d == 0]))
        axes += [(use, places // inner), (use, inner)] if inner > 1 else [(use, places)]
    axes = draw(st.permutations(axes))
    return f"{'x'.join(str(size) for _, size in axes)}:{''.join(use for use, _ in axes)}"


@st.composite
def edge_texts(draw, size):
    """Irregular edges of one dimension, empty tiles among them."""
    inner = draw(st.lists(st.integers(0, size), max_size=4))
    return "-".join(map(str, [0, *sorted(inner), size]))


@st.composite
def problems(draw, max_ranks=16, dtype="float64"):
    """Any problem: sizes, ranks and three layouts independent of each other."""
    m, n, k = draw(SIZES), draw(SIZES), draw(SIZES)
    ranks = draw(st.integers(1, max_ranks))
    a, b, c = (draw(layout_texts(shape, ranks)) for shape in ((m, k), (k, n), (m, n)))
    return Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype=dtype)


stationaries = st.sampled_from(["A", "B", "C"])
offsets = st.sampled_from(["none", "index", "rotate"])

finals = st.sampled_from(["complete", "reduce", "broadcast", "all-reduce", "reduce-scatter"])

_options = {
    "prefetch": st.integers(0, 3),
    "max_gemms": st.integers(1, 3),
    "max_accumulates": st.integers(1, 3),
    "offset": offsets,
    "granularity": st.sampled_from(["tile", "slice"]),
    "reuse": st.booleans(),
}

# Everything but the policy that umm.schedule takes beside the stationary matrix; and of it what direct
# execution itself defines, without collectives.
schedule_options = st.fixed_dictionaries(_options | {"final": finals})
direct_options = st.fixed_dictionaries(_options | {"final": st.sampled_from(["reduce", "broadcast"])})
