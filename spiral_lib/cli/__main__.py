"""``python -m spiral_lib.cli``: the command where the ``spiral`` script is not on the path."""

from spiral_lib.cli import main

main()
