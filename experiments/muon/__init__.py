"""Muon's placements: published sets in order, and the fastest on this host as predicted."""
