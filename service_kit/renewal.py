"""A service goes on with a renewed certificate without a restart."""

import logging
import ssl
from pathlib import Path

from service_kit.certificate import server_context
from service_kit.logs import log_event

_logger = logging.getLogger(__name__)


class RenewedCertificate:
    """A certificate that may be replaced while the service runs: each handshake looks whether the files have changed.
    A pair that cannot be used is logged, and the last one stays."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._files = cert_file, key_file
        self._seen = self._times()
        self._newest: ssl.SSLContext | None = None  #: None: the first one still holds

    def follow(self, context: ssl.SSLContext) -> None:
        """Let connections of the context show the newest certificate."""
        context.sni_callback = self._on_handshake

    def _on_handshake(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        times = self._times()
        if times != self._seen:
            self._seen = times
            try:
                self._newest = server_context(*self._files)
                log_event(_logger, "certificate_renewed", file=str(self._files[0]))
            except ValueError as error:
                log_event(_logger, "certificate_not_renewed", logging.WARNING, reason=str(error))
        if self._newest is not None:
            connection.context = self._newest

    def _times(self) -> tuple[int, ...]:
        """Times of the last changes; 0 for a file that is not there."""
        return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in self._files)
