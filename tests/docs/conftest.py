"""Samples take minutes, so they are run by ``make docs`` alone."""

import os

collect_ignore_glob = [] if os.environ.get("UMM_DOCS") else ["test_*"]
