"""``python -m spiral_lib.cli``: the command where the ``spiral`` script is not on the path."""

from spiral_lib.cli import main

# Registration imports every module of the package, this one too.
if __name__ == "__main__":
    main()
