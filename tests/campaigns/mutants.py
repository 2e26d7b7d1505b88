"""Change one line of umm at a time and see whether its tests notice: ``make mutants``.

``python -m tests.campaigns.mutants [--count N] [--seed S] [--room NAME] [--nearest N]``. A mutant is drawn
from the seed and its number: a comparison, an operator, a number, a condition or a statement of a copy of the
tree in ``build/mutants``. The tests of its room run until one fails, those that import its module first; or,
of all tests, those that killed another one of the room, its doctests, and the N files that name most of it
that few name, five seconds of the processor each. What came of it is a line of ``build/mutants/SEED.jsonl``;
mutants that are there are not run again.
"""

import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from compileall import compile_dir
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
TREE = ROOT / "build/mutants/tree"
PYTHON = ROOT / "build/mutants/venv/bin/python"
SCRIPT = f"#!{PYTHON}\nfrom umm.cli import start\nstart()\n"
TEST_S = 120  # a test that loops for ever fails, as one that is slow without the change does not
CPU_S, WALL_S = 3600, 7200  # limits for all tests of a room; beyond them it is undecided
NEAR_S = 5  # of the processor, after which the rest of one of the nearest files is skipped
BEGAN: dict[Path, float] = {}  # seconds of the processor when the first test of a file began
FAILING = 1  # pytest's exit code where tests failed


class Room(NamedTuple):
    """Sources that are mutated together, and the tests that run on them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]


ROOMS = {
    "schedules": Room(("umm/schedules",), ("tests/schedules", "tests/sim", "tests/conformance")),
    "collectives": Room(
        ("umm/plans/collectives",),
        ("tests/algorithms/test_collectives.py", "tests/algorithms/test_library.py", "tests/algorithms"),
    ),
    "lowering": Room(
        ("umm/plans/multiply", "umm/plans/redistribution"),
        (
            "tests/algorithms/test_direct_reference.py",
            "tests/algorithms/test_policies.py",
            "tests/algorithms/test_redistribution.py",
            "tests/algorithms",
            "tests/conformance",
        ),
    ),
    "chains": Room(
        ("umm/plans/statements", "umm/plans/movement"), ("tests/chains", "tests/algorithms", "tests/space")
    ),
    "search": Room(
        ("umm/space/search", "umm/space/assignments.py", "umm/space/space.py", "umm/space/choice.py"),
        ("tests/space",),
    ),
    "traces": Room(("umm/traces",), ("tests/traces", "tests/figures", "tests/explorer")),
    "arrays": Room(
        ("umm_hw/arrays",),
        ("tests/hw/test_arrays.py", "tests/test_tensors.py", "tests/test_rank_agreement.py"),
    ),
}

OTHER: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
TWINS = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}


class Mutant(NamedTuple):
    """A change of one line."""

    path: str
    line: int
    before: str
    after: str


def changed(node: ast.AST) -> ast.AST | None:
    """Return a node that says something else; None if there is none."""
    match node:
        case ast.Compare(left, [op], comparators) if type(op) in OTHER:
            return ast.Compare(left, [OTHER[type(op)]()], comparators)
        case ast.BinOp(left, op, right) if type(op) in OTHER:
            return ast.BinOp(left, OTHER[type(op)](), right)
        case ast.BoolOp(op, values):
            return ast.BoolOp(OTHER[type(op)](), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            return operand
        case ast.Constant(bool() as value):
            return ast.Constant(not value)
        case ast.Constant(int() as value):
            return ast.Constant(value + 1)
        case ast.Call(ast.Name(name), args, keywords) if name in TWINS:
            return ast.Call(ast.Name(TWINS[name]), args, keywords)
        case ast.Call(ast.Attribute(value, name), args, keywords) if name in TWINS:
            return ast.Call(ast.Attribute(value, TWINS[name]), args, keywords)
        case ast.IfExp(test, body, orelse):
            return ast.IfExp(test, orelse, body)
        case ast.AugAssign(target, op, value) if type(op) in OTHER:
            return ast.AugAssign(target, OTHER[type(op)](), value)
        case ast.Expr(ast.Call()):
            return ast.Pass()
        case ast.Continue():
            return ast.Break()
    return None


def _parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all that runs below a node: no annotations, decorators, messages of errors, or assertions."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(
                child, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom
            ):
                yield child
                yield from _parts(child)


def mutants(path: str) -> list[Mutant]:
    """Return the mutants of a file, each of one line."""
    text = (TREE / path).read_text()
    lines = text.splitlines()
    result = []
    for node in _parts(ast.parse(text)):
        other = changed(node)
        if other is None or node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            continue
        line = lines[node.lineno - 1]  # type: ignore[attr-defined]
        raw, new = line.encode(), ast.unparse(ast.fix_missing_locations(other))
        if isinstance(other, ast.expr) and not isinstance(other, ast.Constant | ast.Call):
            new = f"({new})"
        after = raw[: node.col_offset] + new.encode() + raw[node.end_col_offset :]  # type: ignore[attr-defined]
        result.append(Mutant(path, node.lineno, line, after.decode()))  # type: ignore[attr-defined]
    return result


def drawn(room: str, seed: int, number: int) -> Mutant:
    """Return a mutant of a room: the same for the same source, seed and number."""
    sources = [TREE / x for x in ROOMS[room].sources]
    paths = sorted(y for x in sources for y in ([x] if x.is_file() else x.rglob("*.py")))
    able = [x for path in paths for x in mutants(str(path.relative_to(TREE)))]
    return random.Random(f"{room}/{seed}/{number}").choice(able)


def copied() -> None:
    """Replace the copy, compiled libraries included."""
    shutil.rmtree(TREE, ignore_errors=True)
    TREE.mkdir(parents=True)
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    compiled = [str(x.relative_to(ROOT)) for name in ("umm", "umm_sim") for x in (ROOT / name).rglob("*.so")]
    for name in [*names.splitlines(), *compiled]:
        (TREE / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_file():
            shutil.copy2(ROOT / name, TREE / name)
    for name in ("umm", "umm_sim", "umm_hw"):
        compile_dir(TREE / name, quiet=1)
    _environment()


def _environment() -> None:
    """Make an environment with the packages of this one whose processes import umm from the copy."""
    folder = PYTHON.parent
    shutil.rmtree(folder.parent, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder.parent], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (folder.parent / "lib" / version / "site-packages/copy.pth").write_text(
        f"{TREE}\n{sysconfig.get_path('purelib')}\n"
    )
    for name in ("bin", "lib"):  # commands, and libraries such as MPI's
        for path in (Path(sys.prefix) / name).iterdir():
            place = folder.parent / name / path.name
            if not place.exists() and path.name != "umm":
                place.symlink_to(path)
    (folder / "umm").write_text(SCRIPT)
    (folder / "umm").chmod(0o755)


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))


def pytest_runtest_setup(item: Any) -> None:
    """Skip the rest of a file that takes long, where pytest has this module as a plug-in."""
    import pytest

    now = sum(os.times()[:4])  # commands that tests start included
    if now - BEGAN.setdefault(item.path, now) > NEAR_S:
        pytest.skip("takes too long")


def tested(tests: list[str], *options: str) -> tuple[int | None, str]:
    """Run tests in the copy until one fails; return pytest's code, None past a limit, and which failed."""
    usual = ["-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--timeout", str(TEST_S)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "UMM_POISON": "1"}
    with subprocess.Popen(
        [str(PYTHON), *usual, *options, *tests], cwd=TREE, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, preexec_fn=_limited, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=WALL_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return None, "takes too long"
    failed = [x.split()[1] for x in output.splitlines() if x.startswith(("FAILED ", "ERROR "))]
    return (process.returncode if process.returncode >= 0 else None), failed[0] if failed else output[-300:]


def in_turn(room: str, path: str) -> list[list[str]]:
    """Return the tests of a room in the order in which they run: first those that import the module."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    files = []
    for name in ROOMS[room].tests:
        place = TREE / name
        files += [place] if place.is_file() else sorted(place.rglob("test_*.py"))
    names = [str(x.relative_to(TREE)) for x in dict.fromkeys(files)]
    near = [x for x in names if f"{module} import" in (TREE / x).read_text()]
    return [x for x in (near, [x for x in names if x not in near]) if x]


def nearest(room: str, mutant: Mutant, count: int) -> list[str]:
    """Return the module, for its doctests, and the test files that name most of it that few name."""
    module = mutant.path.removesuffix(".py").removesuffix("/__init__")
    parts = ast.walk(ast.parse((TREE / mutant.path).read_text()))
    names = {x.name for x in parts if isinstance(x, ast.FunctionDef | ast.ClassDef)}
    terms = {*names, *module.split("/"), f"{module.replace('/', '.')} import"}
    texts = {x: x.read_text() for x in (TREE / "tests").rglob("test_*.py") if "campaigns" not in x.parts}
    listed = {x: [x == TREE / y or TREE / y in x.parents for y in ROOMS[room].tests] for x in texts}
    scores = {x: sum(listed[x]) / 2 for x in texts}
    for term in terms:
        named = [x for x, text in texts.items() if re.search(rf"\b{term}\b", f"{x.stem} {text}")]
        scores |= {x: scores[x] + 1 / len(named) for x in named}
    ranked = sorted(texts, key=lambda x: (-scores[x], x))
    return [mutant.path, *(str(x.relative_to(TREE)) for x in ranked[:count])]


def tried(mutant: Mutant, groups: list[list[str]], kept: set[str], *options: str) -> tuple[str, str]:
    """Return whether a mutant is killed, survives, fails where the source does, or neither, and why."""
    place = TREE / mutant.path
    text = place.read_text()
    lines = text.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after + "\n"
    for tests in groups:
        place.write_text("".join(lines))
        code, by = tested(tests, *options)
        place.write_text(text)
        if code in (None, FAILING) and "::" in by and by not in kept:
            if tested([by])[0]:
                return "fails anyway", by
            kept.add(by)
        if code:
            return "killed", by
        if code is None:
            return "undecided", by
    return "survived", ""


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", choices=list(ROOMS), action="append", help="of these alone")
    parser.add_argument("--nearest", type=int, metavar="N", help="run the N nearest test files alone")
    parser.add_argument("--list", action="store_true", help="show what is drawn and run nothing")
    asked = parser.parse_args()
    results = ROOT / f"build/mutants/{asked.seed}.jsonl"
    rooms = asked.room or list(ROOMS)
    copied()
    known = [json.loads(x) for x in results.read_text().splitlines()] if results.exists() else []
    done, kept = (
        {(x["room"], x["number"]) for x in known},
        {x["by"] for x in known if x["verdict"] == "killed"},
    )
    for i in range(asked.count):
        room, number = rooms[i % len(rooms)], i // len(rooms)
        if (room, number) in done:
            continue
        mutant, began = drawn(room, asked.seed, number), perf_counter()
        if asked.list:
            verdict, by = "drawn", ""
        elif asked.nearest:
            before = [x["by"] for x in known if x["verdict"] == "killed" and x["room"] == room]
            tests = [*dict.fromkeys(before), *nearest(room, mutant, asked.nearest)]
            verdict, by = tried(mutant, [tests], kept, "-p", "tests.campaigns.mutants")
        else:
            verdict, by = tried(mutant, in_turn(room, mutant.path), kept)
        print(f"{room} {number} {mutant.path}:{mutant.line} {verdict} {by}")
        print(f"  - {mutant.before.strip()}\n  + {mutant.after.strip()}", flush=True)
        if asked.list:
            continue
        row = {"room": room, "number": number, **mutant._asdict(), "verdict": verdict, "by": by}
        known.append(row | {"seconds": round(perf_counter() - began, 1)})
        with results.open("a") as file:
            file.write(json.dumps(known[-1]) + "\n")
    counts = Counter((x["room"], x["verdict"]) for x in known)
    for (room, verdict), count in sorted(counts.items()):
        print(f"{room:12} {verdict:12} {count:4}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
