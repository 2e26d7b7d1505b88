"""Files and numbers from outside are read by one reader and one parser, as their sources show."""

import ast
from functools import cache
from pathlib import Path

import pytest

import umm

ROOT = Path(umm.__file__).parents[1]
OPENING = {
    "open", "read_text", "read_bytes", "load", "loads", "loadtxt", "genfromtxt", "fromfile", "memmap", "mmap",
    "iterparse", "fromstring", "read_csv", "read_json", "read_parquet", "read_sql_query", "read_excel",
    "read_pickle", "connect", "ZipFile", "DictReader", "safe_load", "unpackb",
}  # fmt: skip
"""Functions of Python's and of libraries that read a file, or what one holds."""
KERNEL = "files of the kernel's own, /proc and /sys, which end"
OWN = "what a process of the same job, or the one that started it, says"
READS = {
    "umm/files.py": "the reader",
    "umm/kept.py": "answers that it wrote itself, by their digest, in files of the user alone",
    "umm/arrays.py": "an .npz file that the reader has opened",
    "umm/cli/printed/streams.py": "/dev/null in the place of a closed stream",
    "umm/explorer/callbacks.py": "what it has just written itself",
    "umm/explorer/uploads.py": "a copy of at most 8 MiB that it has written itself",
    "umm/space/store/database.py": "SQLite, after the reader has opened the file",
    "umm/machines/declaring.py": "JSON that it has just written itself",
    "umm/machines/drafts/hwloc.py": "XML of a text of at most MOST_LOG bytes; expat bounds entities",
    "umm/machines/drafts/measured.py": "CSV of bytes that the reader has read",
    "umm/profiles/chakra.py": "shapes of a trace that the reader has read",
    "umm/machines/tables.py": "CSV of a text that the reader has read",
    "umm/mcp/server.py": "JSON of a command that it has started",
    "umm/machines/drafts/logs.py": "CSV of a text of at most MOST_LOG bytes",
    "umm/host/hardware.py": KERNEL,
    "umm/host/launcher.py": KERNEL,
    "umm_hw/arrays/board.py": OWN,
    "umm_hw/arrays/group.py": KERNEL,
    "umm_hw/arrays/herald.py": KERNEL,
    "umm_hw/mpi/job/team.py": OWN,
    "umm_hw/mpi/locks.py": OWN,
    "umm_hw/mpi/wait.py": OWN,
    "umm_hw/calibrate/host.py": "a copy of its settings",
}
"""Files that read by other means, and why they may."""
LOADING = {
    "umm.notebook", "entry", "found[name]", "performance", "umm.schedules.files", "webbrowser", "partial",
}  # fmt: skip
"""Objects with a method to load, open or write: entry points, libraries, a page, a partial file."""
NUMBERS = {"int", "float", "complex", "Fraction", "Decimal"}
TEXTUAL = {
    "strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "partition", "rpartition", "removeprefix",
    "removesuffix", "replace", "lower", "upper", "group", "groups", "groupdict", "fullmatch", "match",
    "search", "findall", "finditer", "read_text", "decode", "join", "readline", "getenv",
}  # fmt: skip
"""Methods and functions whose values are texts, or matches of a text."""
WRAPPERS = {"zip", "enumerate", "sorted", "list", "tuple", "next", "iter", "reversed", "filter"}
"""Functions that return items of their arguments."""
COUNTS = {
    "umm/numbers.py": "the parser",
    "umm/units.py": "an exact decimal, of at most 40 digits",
    "umm/cli/flags/values.py": "an exact fraction, of at most 40 digits",
    "umm/cli/flags/scaling.py": "a number that the parser has read",
    "umm/explorer/state.py": "a switch as 0 or 1",
    "umm/machines/drafts/measured_serving.py": "a number that the parser has read",
    "umm/space/budget.py": "a budget that is a number already",
    "umm/host/hardware.py": KERNEL,
    "umm/host/launcher.py": KERNEL,
    "umm_hw/arrays/board.py": OWN,
    "umm_hw/arrays/herald.py": OWN,
    "umm_hw/mpi/job/keeper.py": OWN,
}
"""Files that call int or float on a text, and why they may."""


@cache
def sources():
    """Each module's path below the root, and its tree."""
    paths = sorted(
        path for package in ("umm", "umm_sim", "umm_hw") for path in (ROOT / package).rglob("*.py")
    )
    return [(x.relative_to(ROOT).as_posix(), ast.parse(x.read_text(encoding="utf-8"))) for x in paths]


def called(node):
    """The last name of a call."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _of(node):
    """The object of a method call; a transport is connected by a function, unlike a store."""
    if isinstance(node.func, ast.Attribute):
        return ast.unparse(node.func.value)
    return "entry" if called(node) == "connect" else ""


def from_us(tree):
    """Names that a module has from packages of ours, whose readers are looked at themselves."""
    return {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("umm")
        for alias in node.names
    }


class Texts(ast.NodeVisitor):
    """Lines of a module in which int or float is called on possible text.

    A text is a literal, an argument annotated so, what a method of texts or a match gives, an item of either,
    and a name bound to one in the same function.
    """

    def __init__(self):
        self.names, self.lines = [set()], []

    def visit_FunctionDef(self, node):
        known = {x.arg for x in (*node.args.args, *node.args.kwonlyargs) if _is_text(x.annotation)}
        self.names.append(self.names[-1] | known)
        for _ in range(2):  # a name may be bound below its use, in a loop
            lines, self.lines = self.lines, []
            self.generic_visit(node)
            lines, self.lines = self.lines, lines
        self.lines += [x for x in lines if x not in self.lines]
        self.names.pop()

    def visit_Assign(self, node):
        for target in node.targets:
            self._bind(target, node.value)
        self.generic_visit(node)

    def visit_NamedExpr(self, node):
        self._bind(node.target, node.value)
        self.generic_visit(node)

    def visit_For(self, node):
        self._bind(node.target, node.iter)
        self.generic_visit(node)

    def _comprehension(self, node):
        for part in node.generators:
            self._bind(part.target, part.iter)
        self.generic_visit(node)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def visit_Call(self, node):
        name, args = called(node), [*node.args, ast.Constant(0), ast.Constant(0)]
        plain = isinstance(node.func, ast.Name) and not isinstance(args[0], ast.Constant | ast.JoinedStr)
        if (
            (name in NUMBERS and plain and self.is_text(args[0]))
            or (name == "map" and getattr(args[0], "id", "") in NUMBERS and self.is_text(args[1]))
            or (name == "array" and isinstance(args[0], ast.Call) and self.is_text(args[0]))
        ):
            self.lines.append(node.lineno)
        self.generic_visit(node)

    def _bind(self, target, value):
        for name in ast.walk(target):
            if isinstance(name, ast.Name) and self.is_text(value):
                self.names[-1].add(name.id)

    def is_text(self, node):
        match node:
            case ast.Constant():
                return isinstance(node.value, str)
            case ast.JoinedStr():
                return True
            case ast.Name():
                return node.id in self.names[-1]
            case ast.Attribute(attr="environ" | "argv"):
                return True
            case ast.Subscript() | ast.Starred():
                return self.is_text(node.value)
            case ast.Call():
                name = called(node)
                if name in WRAPPERS:
                    return any(map(self.is_text, node.args))
                owner = node.func.value if isinstance(node.func, ast.Attribute) else None
                return name in TEXTUAL | {"str"} or (
                    name == "get" and owner is not None and self.is_text(owner)
                )
            case ast.BoolOp():
                return any(map(self.is_text, node.values))
            case ast.IfExp():
                return self.is_text(node.body) or self.is_text(node.orelse)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self.is_text(node.elt)
            case ast.List() | ast.Tuple():
                return any(map(self.is_text, node.elts))
        return False


def _is_text(annotation):
    """Whether an annotation is of texts, or of a mapping to texts."""
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        return _is_text(annotation.slice.elts[-1])
    parts = ast.walk(annotation) if annotation is not None else ()
    return any(isinstance(x, ast.Name) and x.id in ("str", "Match") for x in parts)


@cache
def bypassing_parser():
    """Places at which int or float is called on a text, by file."""
    result = {}
    for path, tree in sources():
        texts = Texts()
        texts.visit(tree)
        if texts.lines:
            result[path] = sorted(set(texts.lines))
    return result


@cache
def bypassing_reader():
    """Places at which a file is read by other means than the reader, by file."""
    result = {}
    for path, tree in sources():
        ours = from_us(tree)
        lines = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and called(node) in OPENING and called(node) not in ours
            if _of(node) not in LOADING
        ]
        if lines:
            result[path] = lines
    return result


def test_every_file_is_read_by_the_reader():
    """A file that reads by other means says why here; the reason goes with the reading."""
    assert {path: lines for path, lines in bypassing_reader().items() if path not in READS} == {}
    assert set(READS) <= set(bypassing_reader())


def test_every_number_of_a_text_is_read_by_the_parser():
    assert {path: lines for path, lines in bypassing_parser().items() if path not in COUNTS} == {}
    assert set(COUNTS) <= set(bypassing_parser())


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("def f(text: str): return int(text)", 1),
        ("for a, b in x.split():\n    float(b)", 2),
        ("[int(x) for x in match[1].split(',')]", 1),
        ("tuple(map(int, text.partition(':')))", 1),
        ("n = int(os.environ['N'])", 1),
        ("np.array(path.read_text().split(), float)", 1),
        ("if (match := re.search(p, t)) and int(match[1]): pass", 1),
        ("def f(rows: dict[str, int]): return float(rows['a'])", None),
        ("n = int(schedule.rank[3])", None),
    ],
)
def test_a_number_of_a_text_is_seen(code, line):
    texts = Texts()
    texts.visit(ast.parse(code))
    assert texts.lines == ([line] if line else [])
