"""Self-play on zero-sum text games: games, rollouts, role-conditioned advantages, gates and lineage.

The library never imports flytekit; ``tasks/`` and ``workflows/`` wrap it for Flyte.
"""

__version__ = "0.1.0"
