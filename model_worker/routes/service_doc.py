"""What the API documentation says of a worker as a whole."""

from service_kit.route_docs import ServiceDoc

WORKER_DOC = ServiceDoc(
    title="Agon model worker",
    about="One or several models behind an OpenAI-compatible API, and the internal API that controllers call.",
    server="http://127.0.0.1:8200",
    access={
        "open": "none",
        "user": "an API key where AGON_API_KEYS is set; without keys none on a stand-alone server (a server on "
        "loopback then answers to local Host names only), and the worker token on a worker that registers",
        "worker": "the worker token, AGON_WORKER_TOKEN; without one these routes answer 401, except /metrics, which is "
        "open on a stand-alone server",
    },
)
