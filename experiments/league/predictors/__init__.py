"""Ways to predict multiplies: each a module with ``seconds(game)``, found by its name.

``game`` has the machine with the engine's kernels, the type, and the rows to predict and to know; see
:class:`experiments.league.rows.Game`. None is returned of a type that a way does not predict.
"""
