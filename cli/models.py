"""`agon models`: what the workers serve (served_models.py), what lies on this machine (found_models.py), and the model
cards of the boards (model_cards.py)."""

import typer

from cli import found_models, model_cards, served_models

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Models of a running arena: add, remove, sleep, wake and move them; model cards and retirement.",
)
for part in (served_models.app, found_models.app, model_cards.app):
    app.registered_commands.extend(part.registered_commands)
