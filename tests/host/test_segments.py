"""Names of shared memory that MPI leaves behind go, those in use stay."""

import mmap
import os
import signal
import subprocess
import sys
import time

import pytest

from umm.host import launcher as segments

SCRIPT = """
import mmap, os, sys
from pathlib import Path
from umm.host import launcher as segments
segments.FOLDER = segments.DESCRIPTIONS = Path(sys.argv[1])
segments.is_proxy, segments.started = {os.getppid()}.__contains__, lambda process: 0.0
segments.watch_over()
with (segments.FOLDER / "mpich_shm_1_0").open("w+b") as file:
    file.truncate(4096)
    mapped = mmap.mmap(file.fileno(), 4096)
print(os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "FOLDER", tmp_path)
    monkeypatch.setattr(segments, "DESCRIPTIONS", tmp_path)
    return tmp_path


def made(folder, name):
    path = folder / name
    path.write_bytes(bytes(4096))
    return path


@pytest.mark.parametrize("name", ["mpich_shm", "ucx_shm_posix"])
def test_a_new_segment_that_nobody_has_mapped_is_swept(folder, name):
    """MPICH's, and one that UCX had named and not yet mapped when its rank was killed."""
    began = time.time() - 1
    gone, others = made(folder, f"{name}_7"), made(folder, "of_another_library")
    with made(folder, f"{name}_8").open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        segments.sweep(began)
        assert {x.name for x in folder.iterdir()} == {f"{name}_8", others.name}
    assert not gone.exists()


def test_a_segment_of_another_job_is_swept_when_it_is_a_minute_old(folder, monkeypatch):
    """It may belong to a container whose processes cannot be seen from here."""
    path = made(folder, "mpich_shm_7_0")
    time.sleep(0.01)
    segments.sweep(time.time())
    assert path.exists()
    monkeypatch.setattr(segments, "OLD", 0.0)
    segments.sweep(time.time())
    assert not path.exists()


def test_a_description_of_the_host_is_swept_unless_a_proxy_may_have_written_it(folder, monkeypatch):
    """Hydra's proxy writes one for its ranks, and removes it unless it is killed."""
    began = time.time() - 1
    left = made(folder, "hydra_hwloc_xmlfile_left")
    time.sleep(0.05)  # more than a tick of the clock by which processes begin
    with subprocess.Popen(["sleep", "60"]) as proxy:
        monkeypatch.setattr(segments, "is_proxy", lambda process: process == proxy.pid)
        used = made(folder, "hydra_hwloc_xmlfile_used")
        segments.sweep(began)
        assert not left.exists()
        assert used.exists()
        proxy.kill()
        until = time.monotonic() + 20
        while used.exists() and time.monotonic() < until:  # its parent has not asked yet how it ended
            segments.sweep(began)
        assert not used.exists()


def test_the_names_of_segments_that_all_have_mapped_are_forgotten(folder):
    path, asked_for_later = made(folder, "mpich_shm_7_0"), made(folder, "ucx_shm_posix_7")
    with (
        path.open("r+b") as file,
        mmap.mmap(file.fileno(), 4096) as mapped,
        asked_for_later.open("r+b") as other,
        mmap.mmap(other.fileno(), 4096),
    ):
        segments.forget()
        assert not path.exists()
        assert asked_for_later.exists()
        mapped[0] = 1  # the memory stays


@pytest.mark.skipif(sys.platform != "linux", reason="others have no /proc")
def test_a_process_that_is_killed_leaves_no_segment_and_no_description_from_before_it_began(tmp_path):
    made(tmp_path, "hydra_hwloc_xmlfile_left")
    time.sleep(0.05)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        assert int(process.stdout.readline()) == process.pid
        assert list(tmp_path.iterdir())
        os.kill(process.pid, signal.SIGKILL)
    end = time.monotonic() + 20
    while list(tmp_path.iterdir()) and time.monotonic() < end:
        time.sleep(0.02)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="others have no /proc")
def test_the_last_of_a_job_waits_for_files_of_its_own_alone(folder, monkeypatch):
    """Ranks of another proxy make segments and descriptions meanwhile; 10 s were waited for them."""
    began = time.time() - 1
    segment = made(folder, "mpich_shm_7_0")
    mapping = (
        "import mmap, sys; x = mmap.mmap((y := open(sys.argv[1], 'r+b')).fileno(), 4096); sys.stdin.read()"
    )
    rank = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {mapping!r}, sys.argv[1]])"
    with subprocess.Popen([sys.executable, "-c", rank, str(segment)], stdin=subprocess.PIPE) as other:
        until = time.monotonic() + 20
        while not any(map(segments._mapped_by, map(str, segments.descendants(other.pid)))):
            assert time.monotonic() < until
            time.sleep(0.02)
        description = made(folder, "hydra_hwloc_xmlfile_used")
        monkeypatch.setattr(segments, "is_proxy", lambda process: process == other.pid)
        monkeypatch.setattr(segments, "LAST_RANKS", 2.0)
        for proxy, waits in ((0, False), (other.pid, True)):
            start = time.monotonic()
            segments.sweep_last(began, proxy)
            assert (time.monotonic() - start >= 2.0) == waits
        assert segment.exists()
        assert description.exists()
        monkeypatch.setattr(segments, "OLD", -1e-3)
        segments.sweep(time.time() + 100)
        assert not description.exists()  # its proxy would have written it sooner
        other.stdin.close()
