"""`python -m engine.runner RANK SIZE PORT`: a follower process of tensor parallelism. Started by rank 0."""

import sys

from engine.runner.follower import main

if __name__ == "__main__":
    sys.exit(main())
