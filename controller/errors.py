"""Errors of the controller that are not answers to a client.

ControllerError
    ConfigurationError      the settings cannot work
    OwnershipLost           this controller no longer owns the turn that it is running

An error that a client shall read is a wire.errors.ApiError, raised where it is detected and mapped in
service_kit/errors.py.
"""


class ControllerError(Exception):
    """Base of the controller's own errors."""


class ConfigurationError(ControllerError):
    """The settings cannot work; the message says what to set."""


class OwnershipLost(ControllerError):
    """Another process has ended the turn that this one was running."""
