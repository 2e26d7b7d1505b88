"""The OpenCL C that multiplies, accumulates and maps, for every pair of types.

It is OpenCL C 1.2, with 64-bit atomics for float64 and 64-bit integers. A program is this source with a few
macros before it. Matrices are pointers with an offset in elements and the elements from row to row. Half
precision is stored in 16 bits and calculated in float32, so no device needs to calculate in it.
"""

from collections.abc import Sequence

from umm.program.functions import Function
from umm_hw.devices.expressions import ELEMENTWISE, LETTERS

_STORED = {
    "float64": "double",
    "float32": "float",
    "float16": "ushort",
    "bfloat16": "ushort",
    "int64": "long",
    "int32": "int",
}
_LOAD = {"float16": "vload_half(i, (const __global half*)p)", "bfloat16": "as_float((uint)p[i] << 16)"}
_STORE = {"float16": "vstore_half_rte(x, i, (__global half*)p)", "bfloat16": "p[i] = to_brain(x)"}


def types(**operands: str) -> str:
    """Return the macros for operands by letter: T stored, LOAD and STORE of an element.

    >>> types(a="float32").splitlines()[0]
    '#define T_a float'
    """
    lines = []
    for letter, dtype in operands.items():
        lines += [
            f"#define T_{letter} {_STORED[dtype]}",
            f"#define LOAD_{letter}(p, i) ({_LOAD.get(dtype, 'p[i]')})",
            f"#define STORE_{letter}(p, i, x) {_STORE.get(dtype, 'p[i] = x')}",
        ]
    return "\n".join(lines) + "\n"


def calculated(dtype: str) -> str:
    """Return the C type in which a type is calculated."""
    return _STORED[dtype] if dtype not in _LOAD else "float"


COMMON = r"""
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#ifdef cl_khr_int64_base_atomics
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#endif

// To nearest, ties to even; NaN stays NaN, which rounding could carry into infinity.
ushort to_brain(float x) {
    const uint bits = as_uint(x);
    return isnan(x) ? (bits >> 16) | 0x40 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
"""

# A work-group makes a tile of C. It brings a chunk of A and of B to local memory, in strips of 8 rows and of
# LANES columns, whatever lies transposed; then each item adds the products to its own pieces of the tile, of
# 8 x LANES. On a CPU an item is the whole group (GROUP = 1) and the chunks fit the core's own cache; on a GPU
# each item has a piece or two in registers. A vector has at most 32 bytes: what has 64 vanishes from PoCL's
# cache of programs. Where B is A's own memory, transposed, groups above the diagonal do nothing, and those
# below write their tile's mirror image too (SYRK).
GEMM = r"""
#define EACH(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define TAKE(q) XS r##q = LOADS(0, at + LANES * q);
#define ADD(q) r##q = fma((XS)(u[q]), v, r##q);
#define GIVE(q) STORES(r##q, 0, at + LANES * q);
// beta = 0 does not read C
#define KEEP(at) { STORE_c(c, (at), product + (beta != 0 ? beta * LOAD_c(c, (at)) : 0)); }
#define DOWN (TILE / 8)
#define PIECES (DOWN * (TILE / LANES))
#define SIZE (8 * LANES)
#define WIDTH (GROUP < 16 ? GROUP : 16)

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void gemm(__global const T_a* a, long a0, long a_row, long a_col,
          __global const T_b* b, long b0, long b_row, long b_col,
          __global T_c* c, long c0, long c_row, long m, long n, long k, X alpha, X beta) {
    __local X left[TILE * CHUNK], right[CHUNK * TILE];
    const int me = get_local_id(0);
    const long i0 = get_group_id(1) * TILE, j0 = get_group_id(0) * TILE;
    const int rows = min((long)TILE, m - i0), cols = min((long)TILE, n - j0);
    const bool symmetric = (__global const void*)a == (__global const void*)b && a0 == b0
        && a_row == b_col && a_col == b_row && m == n;
    if (symmetric && j0 > i0) return;
    X sums[(PIECES + GROUP - 1) / GROUP * SIZE];
    for (int x = 0; x < (PIECES + GROUP - 1) / GROUP * SIZE; ++x) sums[x] = 0;
    a += a0, b += b0, c += c0;
    for (long p0 = 0; p0 < k; p0 += CHUNK) {
        const int depth = min((long)CHUNK, k - p0);
        for (int i = me / WIDTH; i < TILE; i += GROUP / WIDTH) {
            __global const T_a* from = a + (i0 + i) * a_row + p0 * a_col;
            __local X* to = left + i / 8 * CHUNK * 8 + i % 8;
            for (int p = me % WIDTH; p < depth; p += WIDTH)
                to[8 * p] = i < rows ? LOAD_a(from, p * a_col) : 0;
        }
        for (int p = me / WIDTH; p < depth; p += GROUP / WIDTH) {
            __global const T_b* from = b + (p0 + p) * b_row + j0 * b_col;
            __local X* to = right + p * LANES;
            for (int j = me % WIDTH; j < TILE; j += WIDTH)
                to[j / LANES * CHUNK * LANES + j % LANES] = j < cols ? LOAD_b(from, j * b_col) : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int piece = me, mine = 0; piece < PIECES; piece += GROUP, ++mine) {
            __local const X* u = left + piece % DOWN * CHUNK * 8;
            __local const X* w = right + piece / DOWN * CHUNK * LANES;
            X* at = sums + mine * SIZE;
            EACH(TAKE)
            for (int p = 0; p < depth; ++p, u += 8, w += LANES) {
                const XS v = LOADS(0, w);
                EACH(ADD)
            }
            EACH(GIVE)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (int piece = me, mine = 0; piece < PIECES; piece += GROUP, ++mine) {
        const int i1 = piece % DOWN * 8, j1 = piece / DOWN * LANES;
        for (int i = i1; i < min(i1 + 8, rows); ++i)
            for (int j = j1; j < min(j1 + LANES, cols); ++j) {
                const X product = alpha * sums[mine * SIZE + (i - i1) * LANES + j - j1];
                KEEP((i0 + i) * c_row + j0 + j)
                if (symmetric && j0 < i0) KEEP((j0 + j) * c_row + i0 + i)
            }
    }
}
"""

# Compare-and-swap on the word that holds the element: what OpenCL has for every type on every device. The
# word of a half-precision element holds its neighbour too.
_ADD_SHORT = r"""
void add(volatile __global T_c* c, long at, X value) {
    volatile __global uint* word = (volatile __global uint*)((size_t)(c + at) & ~(size_t)3);
    const uint shift = ((size_t)(c + at) & 2) * 8;
    uint before, after;
    do {
        before = *word;
        ushort held[1] = {before >> shift};
        const X sum = PRIVATE_LOAD(held) + value;
        PRIVATE_STORE(held, sum);
        after = (before & ~(0xffffu << shift)) | ((uint)held[0] << shift);
    } while (atomic_cmpxchg(word, before, after) != before);
}
"""
_ADD_FLOAT = r"""
void add(volatile __global T_c* c, long at, X value) {
    volatile __global WORD* word = (volatile __global WORD*)(c + at);
    WORD before, after;
    do {
        before = *word;
        after = AS_WORD(AS_X(before) + value);
    } while (SWAP(word, before, after) != before);
}
"""


def _words(word: str, x: str, swap: str) -> str:
    names = f"#define WORD {word}\n#define AS_WORD as_{word}\n#define AS_X as_{x}\n#define SWAP {swap}\n"
    return names + _ADD_FLOAT


def _shorts(load: str, store: str) -> str:
    return f"#define PRIVATE_LOAD(p) {load}\n#define PRIVATE_STORE(p, x) {store}\n" + _ADD_SHORT


def _whole(function: str) -> str:
    return f"void add(volatile __global T_c* c, long at, X value) {{ {function}(c + at, value); }}\n"


_ADDS = {
    "float64": _words("ulong", "double", "atom_cmpxchg"),
    "float32": _words("uint", "float", "atomic_cmpxchg"),
    "float16": _shorts("vload_half(0, (const half*)p)", "vstore_half_rte(x, 0, (half*)p)"),
    "bfloat16": _shorts("as_float((uint)p[0] << 16)", "p[0] = to_brain(x)"),
    "int64": _whole("atom_add"),
    "int32": _whole("atomic_add"),
}
# Spans of a row go to work-groups in turn; neighbouring items have neighbouring elements.
WALK = r"""
#define SPAN 1024
#define WALK(rows, cols, ...) \
    const long per_row = (cols + SPAN - 1) / SPAN; \
    for (long span = get_group_id(0); span < rows * per_row; span += get_num_groups(0)) { \
        const long i = span / per_row, first = (span - i * per_row) * SPAN; \
        const long last = min(first + SPAN, cols); \
        for (long j = first + get_local_id(0); j < last; j += get_local_size(0)) { __VA_ARGS__; } \
    }
"""
SPAN = 1024
_ACCUMULATE = r"""
__kernel void accumulate(__global const T_a* a, long a0, long a_row,
                         volatile __global T_c* c, long c0, long c_row, long rows, long cols) {
    a += a0, c += c0;
    WALK(rows, cols, add(c, i * c_row + j, LOAD_a(a, i * a_row + j)))
}
"""


def gemm(factor: str, product: str, tile: int, chunk: int, group: int) -> str:
    """Return the program that multiplies matrices of one type into another.

    Args:
        factor: Type of A and B.
        product: Type of C.
        tile: Rows and columns of a work-group's tile; a multiple of 8.
        chunk: Of k that is brought to local memory at once.
    """
    x, lanes = calculated(product), 4 if product == "float64" else 8
    sizes = (
        f"#define TILE {tile}\n#define CHUNK {chunk}\n#define GROUP {group}\n#define LANES {lanes}\n"
        f"#define X {x}\n#define XS {x}{lanes}\n#define LOADS vload{lanes}\n#define STORES vstore{lanes}\n"
    )
    return COMMON + types(a=factor, b=factor, c=product) + sizes + GEMM


def accumulate(source: str, target: str) -> str:
    """Return the program that adds a block of one type to memory of another, atomically by element."""
    head = COMMON + WALK + types(a=source, c=target) + f"#define X {calculated(target)}\n"
    return head + _ADDS[target] + _ACCUMULATE


def elementwise(function: Function, reads: Sequence[str], written: str) -> str | None:
    """Return the program that performs a function, None if it is no expression of single elements.

    Args:
        reads: Type of each read.
        written: Type of the result.
    """
    if function.name not in ELEMENTWISE:
        return None
    before, expression = ELEMENTWISE[function.name]
    x = "double" if "float64" in (*reads, written) else "float"
    letters = LETTERS[: len(reads)]
    arguments = ["__global T_w* w, long w0, long w_row, long rows, long cols, long whole"]
    loads = []
    for letter, shape in zip(letters, function.operands[1:], strict=True):
        arguments.append(f"__global const T_{letter}* at_{letter}, long {letter}0, long {letter}_row")
        row, col = ("i" if shape[0] == "r" else "0"), ("j" if shape[1] == "c" else "0")
        loads.append(
            f"const X {letter} = LOAD_{letter}(at_{letter}, {letter}0 + {row} * {letter}_row + {col});"
        )
    for name, parameter in function.parameters.items():
        arguments.append(f"{'long' if parameter.whole else 'X'} {name}")
    body = " ".join([*loads, f"STORE_w(w, w0 + i * w_row + j, (X)({expression}))"])
    return (
        COMMON
        + WALK
        + types(**dict(zip(letters, reads, strict=True)), w=written)
        + f"#define X {x}\n{before}"
        + f"__kernel void map({', '.join(arguments)}) {{\n    WALK(rows, cols, {body})\n}}\n"
    )
