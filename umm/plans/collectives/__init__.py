"""Collectives among any ranks: the ways to do each, written with the Builder, and what they must take."""
