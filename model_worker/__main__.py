"""`python -m model_worker`"""

import gc
import sys

# A start makes a million objects and hardly any garbage: looking for some takes a sixth of the time that the imports
# take. server.py turns it on again when the model is loaded.
gc.disable()

from model_worker.main import main  # noqa: E402

sys.exit(main())
