"""The cores of a host: how fast they are just now, and how threads share them."""
