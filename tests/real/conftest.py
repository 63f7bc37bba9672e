"""Without published files in the user's cache, nothing is collected here: `make real` fetches them."""

from tests.real import packages

collect_ignore = [] if packages.model_folders() or packages.vocabularies() else ["test_real_files.py"]
