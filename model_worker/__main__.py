"""`python -m model_worker`"""

import sys

from model_worker.main import main

sys.exit(main())
