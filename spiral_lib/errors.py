"""Exceptions: what a user or machine does wrong raises; what a model does wrong is data."""


class SpiralError(Exception):
    """Base of all errors meant for a user: the message names the thing, the value and the way out."""


class ConfigError(SpiralError):
    """A setting is unknown, has the wrong type or is out of range."""


class EngineError(SpiralError):
    """A token generator cannot be started or failed."""


class CheckpointError(SpiralError):
    """A checkpoint is missing, incomplete or does not match its manifest."""


class DataQualityError(SpiralError):
    """Trajectories failed the quality gate."""


class LineageError(SpiralError):
    """A recorded hash does not match what is on disk."""


class LearnerError(SpiralError):
    """A learner step cannot go on (non-finite numbers, mismatched engine)."""


class RegistryError(SpiralError):
    """A registry lacks what was asked for, or another publisher was faster."""


class ColdStartError(SpiralError):
    """The cold start did not reach its gate."""


class IllegalAction(Exception):
    """An action that the game does not allow in this state; ``reason`` is a short code such as ``illegal_action``."""

    def __init__(self, message: str, *, reason: str = "illegal_action") -> None:
        super().__init__(message)
        self.reason = reason
