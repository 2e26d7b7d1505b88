"""The rules of a valid schedule: operands, dependencies, races."""
