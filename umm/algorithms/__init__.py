"""Ways from a problem and a machine to a schedule, by name."""


def names() -> list[str]:
    """Return the names of all algorithms, the universal one first.

    >>> import umm
    >>> names = umm.algorithms.names()
    >>> names[0], "cannon" in names
    ('universal', True)
    """
    from umm.algorithms.scheduling import names as found

    return found()
