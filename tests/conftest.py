"""What all tests share: hypothesis without deadlines, as these machines are noisy, and poisoned memory."""

import os

from examples import examples
from hypothesis import settings

# Programs that tests start, on packages that need not be here: no doctests are looked for in them.
collect_ignore = ["helpers/dtensor_multiplies.py", "helpers/opencl_programs.py"]

settings.register_profile("umm", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile("umm")

# Memory that nothing has written is NaN on every executor, processes that tests start included.
os.environ["UMM_POISON"] = "1"
