# pyflyte run needs this file: without it workflows/spiral.py is not importable as a package module.
