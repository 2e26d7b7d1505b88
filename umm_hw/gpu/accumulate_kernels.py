"""The CUDA kernels: adding a 2-D block to memory of any GPU, atomically for the whole system; and a wait."""

# What a kernel reads and what it adds to. Half precision may be added to float32 without losing bits.
PAIRS = (
    ("float32", "float32"),
    ("float64", "float64"),
    ("float16", "float32"),
    ("bfloat16", "float32"),
    ("float16", "float16"),
    ("bfloat16", "bfloat16"),
    ("int32", "int32"),
    ("int64", "int64"),
)
THREADS = 512  # of a block; the source below is compiled for this many


def kernel_name(source: str, target: str) -> str:
    """Return the name of the kernel for a pair of types.

    >>> kernel_name("bfloat16", "float32")
    'add_bfloat16_to_float32'
    """
    return f"add_{source}_to_{target}"


TYPES = r"""
typedef long long Index;
typedef unsigned long long Address;

struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };

__device__ float value_of(Half x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
__device__ float value_of(Brain x) { return __uint_as_float((unsigned)x.bits << 16); }
"""
"""Of elements that CUDA has no built-in type for, and what they are as float32."""

# No header is included, so the source compiles wherever NVRTC is. Each kernel takes pointers, strides in
# elements from row to row, and the shape. Where both blocks are aligned to 16 bytes of the target, a thread
# adds 16 bytes at once: Hopper has a vector form of red. Ampere adds element by element, and bfloat16 by
# compare-and-swap, because its native form comes with Hopper. A plain atomicAdd would be atomic only among
# threads of one GPU.
_CODE = r"""
// One element ---------------------------------------------------------------------------------

__device__ void add(float* target, float value) { atomicAdd_system(target, value); }
__device__ void add(double* target, double value) { atomicAdd_system(target, value); }
__device__ void add(int* target, int value) { atomicAdd_system(target, value); }
__device__ void add(Index* target, Index value) { atomicAdd_system((Address*)target, (Address)value); }
__device__ void add(float* target, Half value) { atomicAdd_system(target, value_of(value)); }
__device__ void add(float* target, Brain value) { atomicAdd_system(target, value_of(value)); }
__device__ void add(Half* target, Half value) {
    asm volatile("red.relaxed.sys.global.add.noftz.f16 [%0], %1;"
                 :: "l"(target), "h"(value.bits) : "memory");
}
__device__ void add(Brain* target, Brain value) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.sys.global.add.noftz.bf16 [%0], %1;"
                 :: "l"(target), "h"(value.bits) : "memory");
#else
    unsigned* word = (unsigned*)((Address)target & ~(Address)3);
    const int shift = ((Address)target & 2) ? 16 : 0;
    unsigned seen = *(volatile unsigned*)word, before;
    do {
        before = seen;
        Brain held;
        held.bits = (unsigned short)(before >> shift);
        unsigned short sum;
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(sum) : "f"(value_of(held) + value_of(value)));
        seen = atomicCAS_system(word, before, (before & ~(0xffffu << shift)) | ((unsigned)sum << shift));
    } while (seen != before);
#endif
}

// Sixteen bytes of the target -----------------------------------------------------------------

__device__ void add_four(float* target, float x, float y, float z, float w) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.sys.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(target), "f"(x), "f"(y), "f"(z), "f"(w) : "memory");
#else
    add(target, x), add(target + 1, y), add(target + 2, z), add(target + 3, w);
#endif
}

template <class Source, class Target> struct Pack {  // no vector form: one element
    typedef Source Load;
    static const int width = 1;
    static __device__ void add_to(Target* target, Load held) { add(target, held); }
};
template <> struct Pack<float, float> {
    typedef float4 Load;
    static const int width = 4;
    static __device__ void add_to(float* target, float4 v) { add_four(target, v.x, v.y, v.z, v.w); }
};
template <class Short> struct ShortsToFloat {
    typedef uint2 Load;
    static const int width = 4;
    static __device__ float low(unsigned pair) { Short x; x.bits = (unsigned short)pair; return value_of(x); }
    static __device__ void add_to(float* target, uint2 v) {
        add_four(target, low(v.x), low(v.x >> 16), low(v.y), low(v.y >> 16));
    }
};
template <> struct Pack<Half, float> : ShortsToFloat<Half> {};
template <> struct Pack<Brain, float> : ShortsToFloat<Brain> {};
template <> struct Pack<Half, Half> {
    typedef uint4 Load;
    static const int width = 8;
    static __device__ void add_to(Half* target, uint4 v) {
#if __CUDA_ARCH__ >= 900
        asm volatile("red.relaxed.sys.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};"
                     :: "l"(target), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
#else
        const unsigned pairs[4] = {v.x, v.y, v.z, v.w};
        for (int i = 0; i < 4; ++i)
            asm volatile("red.relaxed.sys.global.add.noftz.f16x2 [%0], %1;"
                         :: "l"(target + 2 * i), "r"(pairs[i]) : "memory");
#endif
    }
};
#if __CUDA_ARCH__ >= 900
template <> struct Pack<Brain, Brain> {
    typedef uint4 Load;
    static const int width = 8;
    static __device__ void add_to(Brain* target, uint4 v) {
        asm volatile("red.relaxed.sys.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};"
                     :: "l"(target), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    }
};
#endif

// The block -----------------------------------------------------------------------------------

// Chunks of consecutive items of a row go to thread blocks in turn. A thread loads all its items of a chunk
// before it adds the first, so that the loads overlap.
template <class Load, class Target, class Adds>
__device__ void walk(const char* source, Index source_pitch, Target* target, Index target_stride,
                     Index rows, Index items, int width, Adds adds) {
    const int unroll = 4;
    const Index span = (Index)blockDim.x * unroll;
    const Index per_row = (items + span - 1) / span;
    for (Index chunk = blockIdx.x; chunk < rows * per_row; chunk += gridDim.x) {
        const Index row = chunk / per_row;
        const Index first = (chunk - row * per_row) * span + threadIdx.x;
        const Load* from = (const Load*)(source + row * source_pitch);
        Target* to = target + row * target_stride;
        Load held[unroll];
#pragma unroll
        for (int i = 0; i < unroll; ++i) {
            const Index item = first + (Index)i * blockDim.x;
            if (item < items) held[i] = from[item];
        }
#pragma unroll
        for (int i = 0; i < unroll; ++i) {
            const Index item = first + (Index)i * blockDim.x;
            if (item < items) adds(to + item * width, held[i]);
        }
    }
}

template <class Source, class Target>
__device__ void accumulate(const Source* source, Index source_stride, Target* target, Index target_stride,
                           Index rows, Index cols) {
    typedef Pack<Source, Target> Packed;
    typedef typename Packed::Load Load;
    if (source_stride == cols && target_stride == cols) {  // one long row
        cols *= rows;
        rows = 1;
        source_stride = target_stride = 0;
    }
    const Index pitch = source_stride * (Index)sizeof(Source);
    const bool aligned = (((Address)source | (Address)pitch) % sizeof(Load)) == 0 &&
        (((Address)target | (Address)(target_stride * (Index)sizeof(Target))) % 16) == 0;
    Index done = 0;
    if (Packed::width > 1 && aligned) {
        const Index packs = cols / Packed::width;
        walk<Load>((const char*)source, pitch, target, target_stride, rows, packs, Packed::width,
                   [](Target* to, Load held) { Packed::add_to(to, held); });
        done = packs * Packed::width;
    }
    walk<Source>((const char*)(source + done), pitch, target + done, target_stride, rows, cols - done, 1,
                 [](Target* to, Source held) { add(to, held); });
}
"""

STORED = {
    "float64": "double",
    "float32": "float",
    "float16": "Half",
    "bfloat16": "Brain",
    "int64": "Index",
    "int32": "int",
}


def _kernel(source: str, target: str) -> str:
    return (
        f'extern "C" __global__ void __launch_bounds__({THREADS}) {kernel_name(source, target)}(\n'
        f"    const {STORED[source]}* source, Index source_stride, {STORED[target]}* target,\n"
        "    Index target_stride, Index rows, Index cols) {\n"
        "    accumulate(source, source_stride, target, target_stride, rows, cols);\n"
        "}\n"
    )


_HOLD = r"""
extern "C" __global__ void hold(Index nanoseconds) {
    Address now, end;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
    end += nanoseconds;
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now < end);
}
"""

SOURCE = TYPES + _CODE + _HOLD + "\n" + "\n".join(_kernel(*pair) for pair in PAIRS)
OPTIONS = ("--std=c++17",)
