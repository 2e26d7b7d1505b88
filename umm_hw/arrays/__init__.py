"""Multiply matrices that are distributed already, in the memory of the program that calls."""
