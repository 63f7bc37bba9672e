"""The least that a user of the store must be allowed: every command of ours, on the keys of the arena.

Redis checks the commands inside scripts, too. `agon store acl` prints the rule; the tests of the controller run under
it.
"""

import re
from collections.abc import Sequence
from importlib import resources

#: Commands outside scripts: of controllers (controller/), then of `agon store`.
COMMANDS = (
    *("ping", "evalsha", "eval", "time", "wait", "waitaof", "info", "config|get", "select"),
    *("get", "set", "mget", "hget", "hset", "hgetall", "zrem", "pexpire"),
    *("xread", "xrange", "xrevrange"),
)

_CALL = re.compile(r"redis\.call\('([A-Za-z]+)'")


def commands() -> tuple[str, ...]:
    """All commands that we send, inside scripts and outside, sorted."""
    files = (resources.files("controller.store") / "lua").iterdir()
    inside = {name.lower() for file in files if file.name.endswith(".lua") for name in _CALL.findall(file.read_text())}
    return tuple(sorted({*COMMANDS, *inside}))


def acl_rule(user: str, key_prefixes: Sequence[str], *, password: str | None) -> str:
    """The line of an ACL file, or what follows ACL SETUSER, for a user of the arena with these keys. password: None: a
    placeholder stands in its place."""
    keys = " ".join(f"~{prefix}:*" for prefix in key_prefixes)
    allowed = " ".join(f"+{name}" for name in commands())
    return f"user {user} on >{password or 'PASSWORD'} sanitize-payload resetchannels {keys} -@all {allowed}"
