"""Errors of the commands; their messages are shown to the user.

CliError
  DataDirInUse     another arena runs on the same data directory
  StoreError       the embedded store cannot be found or does not start
    StoreRefused   the server does not load the store's files
"""


class CliError(Exception):
    """Ends the command with exit code 1 and this message, without a traceback."""


class DataDirInUse(CliError):
    """Another process holds the lock of the data directory."""


class StoreError(CliError):
    """There is no usable store binary, or the server did not start."""


class StoreRefused(StoreError):
    """The server does not load the files of the store."""
