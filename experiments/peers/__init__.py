"""MLP-1 and MLP-2 by everything that multiplies, from row layouts, on two machines."""
