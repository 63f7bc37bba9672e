"""Errors of the controller that are not answers to a client.

ControllerError
    ConfigurationError      the settings cannot work
    OwnershipLost           this controller no longer owns the turn that it is running

What a client shall read is a wire.errors.ApiError, raised where it is noticed and mapped in service_kit/errors.py.
"""


class ControllerError(Exception):
    """Anything that goes wrong inside the controller."""


class ConfigurationError(ControllerError):
    """The settings cannot work; the message says what to set."""


class OwnershipLost(ControllerError):
    """Another process has ended the turn that this one was running."""
