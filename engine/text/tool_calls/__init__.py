"""Tool calls in the forms that models write: detection, parsing while the output grows, grammars that force calls."""
