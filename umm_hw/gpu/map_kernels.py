"""The CUDA kernels of maps: one pass over inputs and output, 16 bytes of the shortest type at once."""

from collections.abc import Sequence

from umm.program.functions import Function
from umm_hw.devices.device import Region
from umm_hw.devices.expressions import ELEMENTWISE, LETTERS, ROWWISE
from umm_hw.gpu.accumulate_kernels import STORED, TYPES

MAP_THREADS = 256  # of a block
_MOST_BLOCKS = 65535  # along rows

# A pack is so many elements of a row. Where addresses, strides and columns allow, it is loaded and stored at
# once; a map may write what it reads, for each thread reads its pack before it writes.
_CODE = r"""
#define isnan(x) ((x) != (x))
__device__ float value_of(float x) { return x; }
__device__ double value_of(double x) { return x; }
__device__ void store(float& to, X x) { to = x; }
__device__ void store(double& to, X x) { to = x; }
__device__ void store(Half& to, X x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x)); }
__device__ void store(Brain& to, X x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"((float)x)); }

template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack { T at[N]; };
template <int N, class T> __device__ Pack<T, N> pack(const T* from) { return *(const Pack<T, N>*)from; }

// The sum of a block's threads, for all of them.
__device__ X whole_block(X sum) {
    __shared__ X parts[32];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < blockDim.x / 32; ++i) sum += parts[i];
    return sum;
}
"""


def map_name(function: str, types: Sequence[str], width: int) -> str:
    """Return the name of the kernel for some types, the written one last.

    >>> map_name("add", ("bfloat16", "bfloat16", "bfloat16"), 8)
    'add_of_bfloat16_bfloat16_to_bfloat16_by_8'
    """
    return "_".join((function, "of", *types[:-1], "to", types[-1], "by", str(width)))


def width_of(regions: Sequence[Region], cols: int) -> int:
    """Return how many elements a thread takes at once: 16 bytes of the shortest type, or one.

    Args:
        regions: What is read and what is written; those of one column are read by single elements.
        cols: Columns of the widest.
    """
    width = 16 // min(x.dtype.itemsize for x in regions)
    wide = [x for x in regions if x.cols > 1]
    fits = all((x.address | x.pitch) % min(width * x.dtype.itemsize, 16) == 0 for x in wide)
    return width if fits and cols % width == 0 else 1


def map_grid(function: Function, rows: int, cols: int, width: int) -> tuple[int, int]:
    """Return the blocks along columns and along rows; a function of whole rows has one block for each."""
    across = 1 if function.name in ROWWISE else -(-cols // (width * MAP_THREADS))
    return across, min(rows, _MOST_BLOCKS)


def map_source(function: Function, types: Sequence[str], width: int) -> str | None:
    """Return the program that performs a function; None if no kernel does.

    Args:
        types: Of each read, and of the result.
        width: Elements that a thread takes at once.
    """
    rowwise = function.name in ROWWISE
    if not (rowwise or function.name in ELEMENTWISE) or any("float" not in x for x in types):
        return None
    x = "double" if "float64" in types else "float"
    before = (ROWWISE if rowwise else ELEMENTWISE)[function.name][0].replace("X ", "__device__ X ", 1)
    return TYPES + f"#define X {x}\n" + _CODE + before + _kernel(function, types, width)


def _kernel(function: Function, types: Sequence[str], width: int) -> str:
    result, *reads = function.operands
    stored = STORED[types[-1]]
    arguments = [f"{stored}* w, Index w_row, Index rows, Index cols, Index whole"]
    loads, values = "", ""
    for letter, shape, dtype in zip(LETTERS, reads, types, strict=False):
        arguments.append(f"const {STORED[dtype]}* at_{letter}, Index {letter}_row")
        row = f"i * {letter}_row" if shape[0] == "r" else "0"
        if shape[1] == "c":
            loads += f"const auto all_{letter} = pack<{width}>(at_{letter} + {row} + j); "
            values += f"const X {letter} = value_of(all_{letter}.at[e]); "
        else:
            loads += f"const X {letter} = value_of(at_{letter}[{row}]); "
    arguments += [f"{'Index' if x.whole else 'X'} {name}" for name, x in function.parameters.items()]
    start, blocks = "threadIdx.x", "1"
    if function.name in ELEMENTWISE:
        start, blocks = "blockIdx.x * (Index)blockDim.x + threadIdx.x", "gridDim.x"
    across = (
        f"for (Index j = ({start}) * (Index){width}; j < cols; j += {blocks} * (Index)blockDim.x * {width})"
    )
    each = f"for (int e = 0; e < {width}; ++e)"
    body = ""
    if function.name in ROWWISE:
        _, sums, expression = ROWWISE[function.name]
        named = dict(zip("st", sums, strict=False))
        body += f"X {', '.join(f'{name} = 0' for name in named)};\n"
        adds = " ".join(f"{name} += {summand};" for name, summand in named.items())
        body += f"        {across} {{ {loads}{each} {{ {values}{adds} }} }}\n        "
        body += " ".join(f"{name} = whole_block({name});" for name in named) + "\n        "
    else:
        _, expression = ELEMENTWISE[function.name]
    if function.name in ROWWISE and result[1] == "1":
        body += f"if (threadIdx.x == 0) store(w[i * w_row], {expression});"
    else:
        body += (
            f"{across} {{\n            {loads}\n            Pack<{stored}, {width}> found;\n"
            f"            {each} {{ {values}store(found.at[e], (X)({expression})); }}\n"
            f"            *(Pack<{stored}, {width}>*)(w + i * w_row + j) = found;\n        }}"
        )
    return (
        f'extern "C" __global__ void __launch_bounds__({MAP_THREADS})\n'
        f"{map_name(function.name, types, width)}({', '.join(arguments)}) {{\n"
        f"    for (Index i = blockIdx.y; i < rows; i += gridDim.y) {{\n        {body}\n    }}\n}}\n"
    )
