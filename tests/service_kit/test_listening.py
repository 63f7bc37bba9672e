"""Several descriptors of one listening socket: one port, one queue."""

import socket

from service_kit.listening import ACCEPTS, descriptors, listen


async def test_all_descriptors_accept_from_one_port() -> None:
    listener = listen("127.0.0.1", 0)
    sockets = descriptors(listener)
    assert len({sock.getsockname() for sock in sockets}) == 1
    assert len(sockets) == ACCEPTS
    clients = [socket.create_connection(listener.getsockname()) for _ in range(ACCEPTS)]
    accepted = [sock.accept()[0] for sock in sockets]
    for sock in (*clients, *accepted, *sockets):
        sock.close()
    again = listen("127.0.0.1", 0)
    again.close()


def test_a_port_that_is_taken_is_an_error() -> None:
    with listen("127.0.0.1", 0) as listener:
        try:
            listen("127.0.0.1", listener.getsockname()[1])
        except OSError:
            return
    raise AssertionError("two services listen on one port")
