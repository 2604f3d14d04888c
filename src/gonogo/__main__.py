"""`python -m gonogo`: the command line."""

import sys
from pathlib import Path

# Python puts the current folder first; a file there that is named like a module is not to run, nor to hide one.
if sys.path and Path(sys.path[0] or ".").resolve() == Path.cwd():
    del sys.path[0]

from gonogo.cli import main

if __name__ == "__main__":
    main()
