"""Collectives among any ranks: the ways to do each, written with the Builder, and their closed forms."""
