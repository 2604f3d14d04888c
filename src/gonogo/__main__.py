"""`python -m gonogo`: the command line."""

from gonogo.cli import main

if __name__ == "__main__":
    main()
