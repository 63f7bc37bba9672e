"""`python -m controller.votes.boards.fit_process`: fits boards from many votes, one after the other, at low priority.

Such a fit takes seconds; in the controller it would share the interpreter with every stream. A question comes as a line
on standard input (job_file.py), the answer goes to standard output: one byte, four of the length, the text. Ends with
its controller, when standard input does.
"""

import json
import os
import sys
from pathlib import Path
from typing import Final

VIEW: Final = b"v"  #: a board: JSON of a LeaderboardView
UNKNOWN_MODEL: Final = b"m"  #: the name of an anchor that is not on the board
FAILED: Final = b"f"  #: what went wrong

_NICENESS: Final = 10


def main() -> None:
    """Answer until the controller goes."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # read when numpy is loaded; the other cores are for the arena
    os.nice(_NICENESS)

    from controller.votes.boards.board_view import fit_board
    from controller.votes.boards.job_file import parse_job, read_votes
    from ratings.errors import UnknownModelError

    path, columns = "", {}
    for line in sys.stdin.buffer:
        kind, text = FAILED, b""
        try:
            if (named := json.loads(line)["votes"]) != path:
                path, columns = named, read_votes(Path(named))
            kind, text = VIEW, fit_board(parse_job(line, columns)).model_dump_json().encode()
        except UnknownModelError as error:
            kind, text = UNKNOWN_MODEL, error.model.encode()
        except Exception as error:  # reported to the controller, which logs it; the next question may be another
            path, text = "", repr(error).encode()
        try:
            sys.stdout.buffer.write(kind + len(text).to_bytes(4, "big") + text)
            sys.stdout.buffer.flush()
        except BrokenPipeError:  # the controller has gone
            os._exit(0)


if __name__ == "__main__":
    main()
