"""A progress bar on stderr during a measurement; only its title if stderr is no terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

#: Called once per finished piece of work.
Advance = Callable[[], None]


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Advance]:
    """Yields a function that advances a bar of `total` steps."""
    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(title)
        yield lambda: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(title, total=total)
        yield lambda: progress.advance(task)
