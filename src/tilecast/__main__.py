"""`python -m tilecast` is the `tilecast` command."""

from tilecast.cli import run

if __name__ == "__main__":
    run()
