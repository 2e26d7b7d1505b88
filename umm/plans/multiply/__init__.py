"""The universal one-sided algorithm: op lists by slicing, and the policies that lower them."""
