"""``python -m tests.docs [PAGE …]``: write the current output of commands into the pages.

Where lines are left out by ``…`` nothing is written; these are printed, to be mended by hand.
"""

import sys
import tempfile
from pathlib import Path

from tests.docs.samples import ROOT, pages, performed


def main():
    for page in sys.argv[1:] or pages():
        with tempfile.TemporaryDirectory() as folder:
            for done in performed(page, Path(folder)):
                if done.right:
                    continue
                if done.sample.language == "sh" or "…" in done.shown:
                    print(done)
                    continue
                print(f"{page}: {done.command}")
                path = ROOT / page
                shown, printed = (
                    "\n".join([f"$ {done.command}", *x]) + "\n" for x in (done.shown, done.printed)
                )
                text = path.read_text(encoding="utf-8")
                assert text.count(shown) == 1, f"{page} has this command more than once"
                path.write_text(text.replace(shown, printed), encoding="utf-8")


main()
