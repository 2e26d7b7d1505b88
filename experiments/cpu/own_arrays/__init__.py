"""Multiplies of arrays that ranks hold already, beside ScaLAPACK, DTensor and dask in one run."""
