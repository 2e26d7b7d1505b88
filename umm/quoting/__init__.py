"""Quoting of foreign text for other languages, in which it is never code, markup or control."""
