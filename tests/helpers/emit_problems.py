"""Multiplies that programs are emitted for, on four ranks: even, uneven, replicated, cyclic, brought."""

import umm
from umm.emit.program import emit

SIZES = {"even": {"m": 16, "n": 24, "k": 32}, "uneven": {"m": 13, "n": 17, "k": 19}}
PROBLEMS = {
    "one axis": ("even", {"a": "row", "b": "col", "c": "col"}, "B"),
    "two axes": ("even", {"a": "2d", "b": "row", "c": "col@2"}, "A"),
    "uneven": ("uneven", {"a": "row", "b": "col", "c": "row"}, "C"),
    "replicated": ("even", {"a": "row@4", "b": "2d@2", "c": "row", "dtype": "float16"}, "C"),
    "uneven on no one mesh": ("uneven", {"a": "row", "b": "2d", "c": "col@2", "given": "a=col,c=2d"}, "B"),
    "cyclic": ("uneven", {"a": "cyclic:2x3:2x2", "b": "2d:balanced", "c": "col@2:interleaved"}, "C"),
    # torch sorts the ranks of a group: by DTensor on this mesh C was wrong, and uneven parts hung in gloo.
    "ranks that fall along an axis": (
        "uneven",
        {
            x: f"dtensor:mesh=4:2-0-1-3;{y}"
            for x, y in (("a", "Shard(0)"), ("b", "Shard(1)"), ("c", "Shard(1)"))
        },
        "B",
    ),
    "ranks that rise along both axes": (
        "even",
        {x: f"dtensor:mesh=2x2:0-2-1-3;{y}" for x, y in (("a", "S(0)R"), ("b", "S(1)R"), ("c", "S(0)S(1)"))},
        "C",
    ),
    "fewer rows than ranks": ("even", {"m": 3, "a": "row", "b": "row@2", "c": "row"}, "B"),
}
"""Sizes, what else the problem is, and the matrix that stays in place, by name."""
NOT_IN_JAX = {"cyclic"}


def problem_of(name):
    """The problem of a name."""
    sizes, more, _ = PROBLEMS[name]
    return umm.Problem(**({**SIZES[sizes], "ranks": 4} | more))


def written(name, target, folder):
    """The file of the program that is emitted for a problem."""
    path = folder / f"{name.replace(' ', '_')}_{target}.py"
    problem = problem_of(name)
    path.write_text(emit(target, problem, "h100-8", PROBLEMS[name][2], {"prefetch": 1}, "Predicted 3 ms."))
    return path
