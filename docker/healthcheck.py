"""Container health check: `python healthcheck.py URL` succeeds when URL answers 200. Standard library only."""

import sys
import urllib.error
import urllib.request


def main() -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # the container asks itself
    try:
        with opener.open(sys.argv[1], timeout=2.5) as answer:
            return 0 if answer.status == 200 else 1
    except (urllib.error.URLError, OSError) as error:
        print(error)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
