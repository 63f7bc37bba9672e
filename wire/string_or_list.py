"""Contents that are a string or a list of parts."""

from pydantic import Discriminator

#: Discriminator of contents: a string (Tag "a string") or a list (Tag "a list"). With it errors tell what is wrong
#: in the list. The tags have spaces, so that they are no part of the path of a field (strict_json.py).
STRING_OR_LIST = Discriminator(lambda value: "a string" if isinstance(value, str) else "a list")
