"""A process counts as started by mpiexec only with a way to the process manager."""

import os
import socket
import time

import pytest

from umm.host import launcher
from umm.host.launcher import launched_rank, launched_size, stay_on_loopback


@pytest.fixture
def environment(monkeypatch):
    for name in [x for x in os.environ if x.startswith(("PMI", "OMPI", "MPI_", "PALS", "SLURM", "UCX"))]:
        monkeypatch.delenv(name)
    return monkeypatch.setenv


def test_a_rank_that_is_left_over_in_the_environment_does_not_count(environment):
    environment("PMI_RANK", "1")
    environment("PMI_SIZE", "4")
    assert (launched_rank(), launched_size()) == (None, None)
    with socket.socket() as manager:
        environment("PMI_FD", str(manager.fileno()))
        assert (launched_rank(), launched_size()) == (1, 4)
    assert (launched_rank(), launched_size()) == (
        None,
        None,
    )  # as in a child process, which does not inherit it


@pytest.mark.parametrize(
    ("name", "value"), [("PMI_PORT", "host:4711"), ("SLURM_PROCID", "1"), ("PALS_RANKID", "1")]
)
def test_a_process_manager_may_be_reached_in_another_way(environment, name, value):
    environment("PMI_RANK", "1")
    environment(name, value)
    assert launched_rank() == 1


def test_where_all_ranks_are_on_one_host_an_inherited_port_is_bound_to_loopback(environment):
    """With two of four ranks here it stays as it is, and so do UCX's transports."""
    environment("PMI_SIZE", "4")
    with socket.create_server(("0.0.0.0", 0)) as port:

        def device():
            return port.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0")

        environment("MPI_LOCALNRANKS", "2")
        stay_on_loopback()
        assert device() == b""
        assert "UCX_TLS" not in os.environ
        environment("MPI_LOCALNRANKS", "4")
        environment("UCX_TLS", "")
        del os.environ["UCX_TLS"]
        stay_on_loopback()
        assert device() == b"lo"
        assert os.environ["UCX_TLS"] == "self,posix"


def test_old_segments_of_others_hold_no_sweeper_up(monkeypatch, tmp_path):
    """One that was there before counts as old, to be removed if nobody maps it, but nobody waits for it."""
    monkeypatch.setattr(launcher, "FOLDER", tmp_path)
    segment = tmp_path / "mpich_shm_1"
    segment.touch()
    later = time.time() + 100
    assert list(launcher._named(later - 200, old=False)) == [str(segment)]
    monkeypatch.setattr(launcher, "OLD", -1)
    assert list(launcher._named(later)) == [str(segment)]
    assert list(launcher._named(later, old=False)) == []
