"""The kinds of fabric, a file for each: its ``[fabric]`` table in a machine file, and the links it makes.

A new kind is a new file here with a :class:`~umm.machines.kind.Kind` in it; it is found by being here.
"""
