"""What all tests share: hypothesis without deadlines, because these machines are noisy."""

from examples import examples
from hypothesis import settings

settings.register_profile("umm", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile("umm")
