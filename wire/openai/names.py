"""How errors name the fields of a request that was translated into another one: as its client sent them. Pure."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from wire.errors import ApiError


@dataclass(frozen=True, slots=True)
class Names:
    """`places`: beginnings of parameters of the translated request (`messages.2`, `stop`) and what the client sent
    there. The longest one that fits a parameter counts; of messages, which are translated as a whole, the rest of the
    parameter is left out."""

    places: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def of_the_client(self) -> Iterator[None]:
        """Inside, an ApiError names the client's fields."""
        try:
            yield
        except ApiError as error:
            raise self.renamed(error) from None

    def renamed(self, error: ApiError) -> ApiError:
        """The error in the client's names."""
        parts = (error.param or "").split(".")
        for length in range(len(parts), 0, -1):
            place = self.places.get(".".join(parts[:length]))
            if place is not None:
                rest = [] if parts[0] == "messages" else parts[length:]
                param = ".".join([place, *rest])
                message = error.message.replace(error.param or "", param)
                return ApiError(
                    error.code,
                    message,
                    param=param,
                    retry_after_s=error.retry_after_s,
                    reason=error.reason,
                    blame=error.blame,
                )
        return error
