"""Messages where GPUs cannot be used: the missing part, and the line that fixes it."""

import pytest

import umm
from umm.errors import ExecutorUnavailableError
from umm_hw.cuda.executor import CudaExecutor
from umm_hw.gpu import visible


def raising(error):
    def count():
        raise error

    return count


@pytest.mark.parametrize(
    ("count", "result"),
    [
        (raising(ImportError("no cupy here")), r"\(no cupy here\); pip install 'umm-sim\[cuda\]'$"),
        (raising(RuntimeError("no driver")), r"no usable GPU \(no driver\).* version 580 or newer"),
        (lambda: 0, "no GPU is visible; set CUDA_VISIBLE_DEVICES to one that nvidia-smi lists"),
    ],
)
def test_what_is_missing_is_said_with_what_fixes_it(monkeypatch, count, result):
    monkeypatch.setattr(visible, "device_count", count)
    schedule = umm.schedule(umm.Problem(m=4, n=4, k=4, ranks=2), "h100-8")
    with pytest.raises(ExecutorUnavailableError, match=result):
        umm.run(schedule, executor="cuda")
    with pytest.raises(ExecutorUnavailableError, match=result):
        CudaExecutor().run(schedule)


def test_a_missing_library_is_named_with_what_it_is_for(monkeypatch):
    monkeypatch.setattr(visible, "device_count", lambda: 1)
    monkeypatch.setattr(visible, "import_module", lambda name: raising(ImportError(f"{name}\nand more"))())
    assert visible.gpu_problem("nvshmem") == (
        "CuPy lacks the library to multiply (cupy_backends.cuda.libs.cublas); pip install 'umm-sim[nvshmem]'"
    )
    monkeypatch.setattr(visible, "import_module", lambda name: None)
    assert visible.gpu_problem("cuda") is None
