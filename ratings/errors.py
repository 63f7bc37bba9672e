"""Errors of the ratings package.

RatingsError
    InvalidVoteError     also a ValueError
    UnknownModelError    also a ValueError
    ConvergenceError     also an ArithmeticError
"""


class RatingsError(Exception):
    """Anything that this package refuses to do."""


class InvalidVoteError(RatingsError, ValueError):
    """A vote, or a stored count of votes, that cannot be true: an unknown outcome, a model against itself."""


class UnknownModelError(RatingsError, ValueError):
    """A model was named that neither the votes nor the caller's list knows."""

    def __init__(self, model: str) -> None:
        super().__init__(f"unknown model {model!r}")
        self.model = model


class ConvergenceError(RatingsError, ArithmeticError):
    """Newton's method did not settle. The likelihood is concave, so this is a defect, not a property of the votes."""
