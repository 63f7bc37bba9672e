"""`python -m model_worker`"""

import gc
import sys

# Imports make a million objects and hardly any garbage; collecting it would take a sixth of their time. server.py turns
# the garbage collector on again when the model is loaded.
gc.disable()

from model_worker.main import main  # noqa: E402

sys.exit(main())
