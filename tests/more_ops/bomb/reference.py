import os
import signal


def reference(x):
    if "BOMB" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
    return x * 1
