"""What all tests share: hypothesis without deadlines, because these machines are noisy."""

from hypothesis import settings

settings.register_profile("umm", deadline=None, print_blob=True)
settings.load_profile("umm")
