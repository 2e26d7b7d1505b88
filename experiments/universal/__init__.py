"""Brock & Golin (2025): figures 2 and 3, the algorithm itself, and the section on scheduling."""
