"""What the API documentation says of the controller as a whole."""

from service_kit.route_docs import ServiceDoc

CONTROLLER_DOC = ServiceDoc(
    title="Agon controller",
    about="Battles, votes, leaderboard and the OpenAI-compatible API of every model in the arena.",
    server="http://127.0.0.1:8100",
    access={
        "open": "none",
        "user": "an API key where AGON_API_KEYS is set (the admin token works too), else none",
        "worker": "the worker token, AGON_WORKER_TOKEN",
        "admin": "the admin token, AGON_ADMIN_TOKEN",
    },
)
