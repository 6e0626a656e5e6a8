"""`python -m rxjobs` is the command `rxjobs`."""

from rxjobs.cli import main

if __name__ == "__main__":
    main()
