"""What `agon join` checks before it starts a worker: the controller, both versions, the token, and both directions.

A failed check raises CliError with one sentence that says what to change.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import httpx

from cli.errors import CliError
from model_worker.advertised import check_advertised
from model_worker.config import WorkerSettings
from model_worker.errors import StartError
from model_worker.heartbeat import controller_client
from model_worker.server import listen
from service_kit.certificate import server_context
from service_kit.own_addresses import source_address
from service_kit.trust import tls_problem
from wire.errors import ApiError
from wire.joining import CHALLENGE_PATH, CHALLENGE_PATTERN, JoinCheck, JoinReport, proof_of
from wire.probes import Version
from wire.releases import RELEASE, mismatch

_ASK_S = 10.0  #: the controller's call back has 3 s of its own
_HEAD_S = 5.0
_CHALLENGE = re.compile(rf"GET {CHALLENGE_PATH}/({CHALLENGE_PATTERN}) HTTP/1\.[01]\r\n".encode())


def own_address(controller: str) -> str:
    """The address of this machine that the controller's machine sees. Raises CliError."""
    parts = urlsplit(controller)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CliError(f"{controller!r} is no URL of a controller, such as http://10.0.0.1:8100.")
    try:
        return source_address(parts.hostname, parts.port or 80)
    except socket.gaierror:
        raise CliError(f"the name {parts.hostname} cannot be resolved here: give the controller's address.") from None
    except OSError as error:
        raise CliError(f"this machine has no route to {parts.hostname}: {error.strerror}.") from None


async def check_join(settings: WorkerSettings, controller: str) -> str:
    """Check everything for a worker with these settings; returns the controller's version. Raises CliError."""
    try:
        check_advertised(settings)
        async with controller_client(settings.token_text, ca_file=settings.ca_file) as client:
            found = await _version_of(client, controller)
            with listen(settings) as listener:
                async with _answering(settings, listener):
                    url = settings.advertised_url(listener.getsockname()[1])
                    report = await _ask(client, controller, url)
    except StartError as error:
        raise CliError(f"{error}.") from None
    if report.problem is not None:
        raise CliError(report.problem[:1].lower() + report.problem[1:])
    return found


async def _version_of(client: httpx.AsyncClient, controller: str) -> str:
    try:
        answer = await client.get(f"{controller}/version")
        found = Version.model_validate_json(answer.raise_for_status().content).version
    except httpx.TransportError as error:
        raise CliError(_unreachable(controller, error)) from None
    except httpx.HTTPStatusError as error:
        raise CliError(f"{controller} is no controller that answers here: {_message(error.response)}") from None
    except ValueError:
        raise CliError(f"another server than a controller of Agon answers at {controller}.") from None
    problem = mismatch(RELEASE, found)
    if problem is not None:
        raise CliError(problem)
    return found


async def _ask(client: httpx.AsyncClient, controller: str, url: str) -> JoinReport:
    body = JoinCheck(url=url, version=RELEASE)
    try:
        answer = await client.post(
            f"{controller}/internal/workers/check", json=body.model_dump(mode="json"), timeout=_ASK_S
        )
    except httpx.TransportError as error:
        raise CliError(_unreachable(controller, error)) from None
    match answer.status_code:
        case 200:
            return JoinReport.model_validate_json(answer.content)
        case 401:
            raise CliError(
                "the controller does not know this worker token: give the one of its machine, which `agon up` keeps "
                "in .agon/worker.token there."
            )
        case 404 | 405:
            raise CliError("the controller is too old for `agon join`: upgrade it to the version of this machine.")
        case _:
            raise CliError(f"the controller refuses this worker: {_message(answer)}")


@contextlib.asynccontextmanager
async def _answering(settings: WorkerSettings, listener: socket.socket) -> AsyncIterator[None]:
    """Answer the controller's challenge where the worker will listen, and nothing else."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_S):
                asked = _CHALLENGE.match(await reader.readuntil(b"\r\n\r\n"))
                status = b"404 Not Found" if asked is None else b"200 OK"
                proof = b"" if asked is None else proof_of(settings.token_text, asked[1].decode()).encode()
                head = b"HTTP/1.1 %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
                writer.write(head % (status, len(proof)) + proof)
                await writer.drain()
        writer.close()

    context = None if settings.tls_pair is None else server_context(*settings.tls_pair)
    server = await asyncio.start_server(answer, sock=listener, ssl=context)
    try:
        yield
    finally:
        server.close()


def _unreachable(controller: str, error: httpx.TransportError) -> str:
    who = f"the controller at {controller}"
    if (problem := tls_problem(error)) is not None:
        return f"{who} {problem}."
    if isinstance(error, httpx.TimeoutException):
        return f"{who} does not answer: is the address right, and no firewall between the machines?"
    if isinstance(error, httpx.ConnectError):
        return f"{who} cannot be reached: does it run there, with --host and an address that other machines reach?"
    if controller.startswith("http:"):
        return f"{who} breaks off the connection: does it have a certificate, so that its URL begins with https://?"
    return f"{who} breaks off the connection ({type(error).__name__})."


def _message(answer: httpx.Response) -> str:
    try:
        return ApiError.from_body(answer.json()).message
    except ValueError:
        return f"HTTP {answer.status_code}."
