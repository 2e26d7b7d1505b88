"""Text put into another language: what anybody wrote is quoted there, never code, markup or control."""
