"""llama.cpp's own server with continuous batching, over HTTP: one connection per request, token ids in and out.

`weights` among the options names the GGUF file, such as q4_k_m.
"""

import http.client
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from socket import create_server
from typing import Any

import channel

_START_TIMEOUT_S = 120.0


class LlamaServer:
    def __init__(self, settings: dict[str, Any]) -> None:
        program = Path(sys.executable).with_name("llama-server")
        with create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        slots, threads = settings["max_running"], str(settings["threads"])
        self._pool = ThreadPoolExecutor(slots)
        path = f"{settings['model']}-{settings['options']['weights']}.gguf"
        command = [str(program), "--model", path, "--host", "127.0.0.1", "--port", str(self._port), "--offline"]
        command += ["--parallel", str(slots), "--ctx-size", str(slots * settings["max_model_len"])]
        command += ["--threads", threads, "--threads-batch", threads, "--threads-http", str(slots + 4)]
        command += ["--batch-size", "2048", "--cache-ram", "0", "--log-verbosity", "1"]
        self._server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self._wait()
        version = subprocess.run([str(program), "--version"], capture_output=True, text=True).stderr
        self.version = f"llama-server {version.splitlines()[0].removeprefix('version: ')}"

    def generate(self, prompts: list[channel.Tokens], lengths: list[int]) -> list[channel.Tokens]:
        return list(self._pool.map(self._complete, prompts, lengths))

    def close(self) -> None:
        self._server.terminate()
        self._server.wait()

    def _complete(self, prompt: channel.Tokens, length: int) -> channel.Tokens:
        settings = {"n_predict": length, "ignore_eos": True, "temperature": 0.0, "samplers": ["top_k"], "top_k": 1}
        message = {"prompt": prompt, "cache_prompt": False, "return_tokens": True, **settings}
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("POST", "/completion", json.dumps(message), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = json.loads(response.read())
        connection.close()
        if response.status != http.HTTPStatus.OK:
            raise RuntimeError(f"llama-server said {answer}")
        return list(answer["tokens"])

    def _wait(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._server.poll() is not None:
                raise SystemExit(f"llama-server ended with {self._server.returncode}")
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=1)
                connection.request("GET", "/health")
                if connection.getresponse().status == http.HTTPStatus.OK:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise SystemExit("llama-server did not become ready")


if __name__ == "__main__":
    servers: list[LlamaServer] = []

    def load(settings: dict[str, Any]) -> LlamaServer:
        servers.append(LlamaServer(settings))
        return servers[-1]

    try:
        channel.serve(load)
    finally:
        for server in servers:
            server.close()
