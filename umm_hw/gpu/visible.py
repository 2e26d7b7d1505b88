"""The visible GPUs, or the reason why there are none."""

from functools import lru_cache
from importlib import import_module

from umm_hw.devices.device import Device
from umm_hw.gpu.cupy_device import CupyDevice, device_count


def gpu_problem(extra: str) -> str | None:
    """Return why GPUs cannot be used here, ending with the line that fixes it; None if they can.

    Args:
        extra: The extra of this package that brings what is missing: cuda or nvshmem.
    """
    install = f"pip install 'umm-sim[{extra}]'"
    try:
        count = device_count()
    except ImportError as error:
        return f"CuPy cannot be imported ({error}); {install}"
    except Exception as error:  # CuPy's own type cannot be named without CuPy
        return (
            f"CUDA finds no usable GPU ({error}); on a machine with an NVIDIA GPU install its driver, "
            f"version 580 or newer, and see that nvidia-smi lists it"
        )
    if count == 0:
        return "no GPU is visible; set CUDA_VISIBLE_DEVICES to one that nvidia-smi lists"
    for library, purpose in (("cublas", "multiply"), ("nvrtc", "compile the accumulate kernels")):
        try:
            import_module(f"cupy_backends.cuda.libs.{library}")
        except ImportError as error:
            first_line = str(error).splitlines()[0]
            return f"CuPy lacks the library to {purpose} ({first_line}); {install}"
    return None


@lru_cache(maxsize=1)
def visible_gpus() -> tuple[Device, ...]:
    """Return all visible GPUs; CUDA starts on the first call."""
    return tuple(CupyDevice(number) for number in range(device_count()))
