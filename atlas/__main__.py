"""`python -m atlas`: the command line, as launchers of several processes start it."""

from atlas.cli import main

if __name__ == "__main__":
    main()
