"""Flags that commands share, the sources of their defaults, and the requests they make."""
