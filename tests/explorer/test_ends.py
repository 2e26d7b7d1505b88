"""``umm explore`` that is ended amid a computation leaves no process and no folder."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest


def processes(mark):
    """Return the living processes that have a mark in their environment."""
    result = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and mark.encode() in (process / "environ").read_bytes():
                result.append(int(process.name))
        except OSError:
            continue
    return result


def until(holds, seconds):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_page_that_is_ended_amid_a_search_leaves_nothing(tmp_path, number):
    mark = f"UMM_TEST={tmp_path}-{number}"
    page = subprocess.Popen(
        [sys.executable, "-m", "umm.cli.main", "explore", "--no-open", "--port", "0"],
        env=os.environ | dict([mark.split("=", 1)]) | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        address = page.stdout.readline().split("/?")[0].strip("/\n")
        query = "?machine=frontera-rtx&m=8192&n=49152&k=12288&tab=leaderboard"
        for stage in (None, ""):  # the second begins what is found behind the page
            asked = json.dumps({"query": query, "viewer": "me", "stage": stage}).encode()
            sent = Request(f"{address}/answer", asked, {"Content-Type": "application/json"})
            with urlopen(sent, timeout=60) as answer:
                answer.read()
        assert until(lambda: len(processes(mark)) >= 4, 30)
        page.send_signal(number)
        page.wait(5)
        assert until(lambda: not processes(mark), 3), processes(mark)
        assert list(tmp_path.iterdir()) == []
        assert "Traceback" not in page.communicate()[1]
    finally:
        for process in processes(mark):
            os.kill(process, signal.SIGKILL)
        page.communicate()
