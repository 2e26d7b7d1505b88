"""Brock & Golin (2025), "universal": what the paper says of scheduling, computed again."""
