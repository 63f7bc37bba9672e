"""`python -m engine.runner RANK SIZE PORT`: one more process of a model that several share. Started by rank 0."""

import sys

from engine.runner.follower import main

if __name__ == "__main__":
    sys.exit(main())
