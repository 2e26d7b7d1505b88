"""Ways from a problem and a machine to a schedule, by name."""


def names() -> list[str]:
    """Return the names of all algorithms, the universal one first.

    >>> import umm
    >>> umm.algorithms.names()[:2]
    ['universal', 'cannon']
    """
    from umm.algorithms.registry import names as found

    return found()
