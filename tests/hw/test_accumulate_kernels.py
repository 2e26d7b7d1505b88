"""The accumulate kernels compile to machine code for three generations of GPUs, without one being here."""

import re

import pytest

from umm_hw.gpu.accumulate_kernels import OPTIONS, PAIRS, SOURCE, kernel_name

cuda_core = pytest.importorskip(
    "cuda.core", reason="make test-gpu-compile installs cuda-core and nvidia-cuda-nvrtc"
)
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_every_kernel_is_in_the_cubin(arch):
    """Ampere, Hopper, Blackwell; a cubin is an ELF file that names its kernels."""
    options = cuda_core.ProgramOptions(arch=arch, std="c++17")
    code = cuda_core.Program(SOURCE, "c++", options).compile("cubin").code
    assert code[:4] == b"\x7fELF"
    for pair in PAIRS:
        assert f".text.{kernel_name(*pair)}".encode() in code


def ptx(arch):
    """NVRTC's output for the source before it becomes machine code."""
    _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"accumulate.cu", 0, [], [])
    options = [f"--gpu-architecture={arch}".encode(), *(option.encode() for option in OPTIONS)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc.nvrtcGetPTXSize(program)
    text = b" " * size
    nvrtc.nvrtcGetPTX(program, text)
    return text.decode()


def atomics(text):
    """For each kernel the atomic instructions it contains."""
    result, kernel = {}, None
    for line in text.splitlines():
        if entry := re.search(r"\.entry (\w+)", line):
            kernel = entry[1]
        if instruction := re.search(r"\b(?:red|atom)\.[\w.]+", line):
            result.setdefault(kernel, set()).add(instruction[0])
    return result


@pytest.mark.parametrize("arch", ["compute_80", "compute_90", "compute_100"])
def test_every_addition_is_atomic_for_the_whole_system(arch):
    """An atomic of GPU scope would lose additions of other GPUs."""
    result = atomics(ptx(arch))
    assert result.keys() == {kernel_name(*pair) for pair in PAIRS}
    for instructions in result.values():
        assert all(".sys" in instruction for instruction in instructions)


def test_hopper_adds_sixteen_bytes_at_once():
    result = atomics(ptx("compute_90"))
    vector = {kernel: {x for x in instructions if ".v4." in x} for kernel, instructions in result.items()}
    assert vector["add_float32_to_float32"] == {"red.relaxed.sys.global.add.v4.f32"}
    assert vector["add_bfloat16_to_float32"] == {"red.relaxed.sys.global.add.v4.f32"}
    assert vector["add_float16_to_float16"] == {"red.relaxed.sys.global.add.noftz.v4.f16x2"}
    assert vector["add_bfloat16_to_bfloat16"] == {"red.relaxed.sys.global.add.noftz.v4.bf16x2"}
