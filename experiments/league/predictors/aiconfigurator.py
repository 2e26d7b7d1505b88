"""AIConfigurator's own interpolation between the known rows (extra aic)."""

import shutil
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd

from experiments.league.rows import COLUMNS, Game
from umm.arrays import Floats
from umm.machines.drafts.measured import AIC, AIC_TABLE


def seconds(game: Game, sol: bool = False) -> Floats | None:
    """Return its engine's answer from a folder that has the known rows alone; None without the extra.

    Of shapes too far from all known ones it has no answer: nan.
    """
    if find_spec(AIC) is None:
        return None
    from aiconfigurator_core.sdk import engine, perf_database
    from aiconfigurator_core.sdk.common import GEMMQuantMode
    from aiconfigurator_core.sdk.errors import PerfDataNotAvailableError
    from aiconfigurator_core.sdk.operations.gemm import GEMM

    system, backend, dtype = game.name
    with TemporaryDirectory() as name:
        folder = Path(name) / "data" / system / "gemm" / backend / "1"
        folder.mkdir(parents=True)
        shutil.copy(Path(perf_database.__file__).parents[1] / "systems" / f"{system}.yaml", name)
        known = pd.DataFrame(game.known * (1, 1, 1, 1e3), columns=COLUMNS).astype(dict.fromkeys("mnk", int))
        known.assign(gemm_dtype=dtype, kernel_source="").to_parquet(folder / f"gemm_{AIC_TABLE}")
        database = perf_database.get_database(system, backend, "1", systems_paths=name)
        handle, result = engine.EngineHandle.for_database(database, systems_path=name), []
        for m, n, k in game.judged[:, :3].astype(int).tolist():
            ops = engine.build_ops_json([GEMM("gemm", 1.0, n, k, GEMMQuantMode[dtype])])
            ask = handle.evaluate_ops_sol_json if sol else handle.evaluate_ops_json
            try:
                result.append(ask(ops, is_context=True, batch_size=1, s=m, x=m)[0][1] * 1e-3)
            except PerfDataNotAvailableError:
                result.append(np.nan)
    return np.array(result)
