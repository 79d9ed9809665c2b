"""A studio that takes a while to write, to be killed at it: serve_slowly.py MODEL."""

import os
import sys
import time

from masil.studio import serve

os.environ["MASIL_ENGINE"] = "torch"
flush = os.fsync


def slow_flush(handle):
    time.sleep(0.15)
    flush(handle)


os.fsync = slow_flush
serve(sys.argv[1], port=0, device="cpu", say=lambda line: sys.stdout.write(f"{line}\n") and sys.stdout.flush())
