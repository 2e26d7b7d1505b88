"""Muon: where each weight's momentum is orthogonalised, priced, balanced over ranks, and as a program."""
