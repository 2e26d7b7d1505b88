"""The workers of a Dask cluster, or a small one of this host."""

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager

from umm.errors import ExecutorUnavailableError


@contextmanager
def pool(jobs: int | None) -> Iterator[Executor]:
    """Yield the pool: of the cluster that Dask's settings name, else of processes here, one per core.

    The setting is ``scheduler-address``, as the variable ``DASK_SCHEDULER_ADDRESS`` or in Dask's files.

    Raises:
        BrokenExecutor: if workers are killed again and again with the same task.
        ExecutorUnavailableError: without dask.distributed, or if the cluster cannot be reached.
    """
    try:
        import dask
        from distributed import Client, KilledWorker
    except ImportError:
        raise ExecutorUnavailableError(
            "pool dask needs dask.distributed, which is not installed; pip install 'umm-sim[dask]'"
        ) from None
    address = dask.config.get("scheduler-address", None)
    try:
        here = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
        client = Client(address) if address else Client(**here)
    except OSError as error:
        raise ExecutorUnavailableError(f"pool dask: there is no cluster at {address}: {error}") from None
    with client:
        try:
            yield client.get_executor(pure=False)
        except KilledWorker as error:
            raise BrokenExecutor(str(error)) from None
