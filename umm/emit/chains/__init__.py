"""Layouts of a chain as programs and flags of frameworks, each with the parts that it cannot express."""
