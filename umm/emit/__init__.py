"""Programs that set up a multiply in torch, in JAX or in umm: runnable as they are printed."""
