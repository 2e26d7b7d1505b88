"""Orthogonalise momenta of distributed matrices, in the caller's memory, as a plan of Muon places them."""
