"""Waits in asyncio, and those of a program that ends."""
from __future__ import annotations

import atexit
import sys
from collections.abc import Generator
from typing import Any

from tutti._tutti import Work, _end_all


def awaited(work: Work[Any]) -> Generator[Any, Any, Any]:
    """Work.__await__: a future of the running loop. The operation goes on if it is cancelled."""
    import asyncio  # which not every program needs

    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def settle() -> None:
        if future.done():
            return
        try:
            future.set_result(work.wait(0))
        except BaseException as error:  # pylint: disable=broad-except # it is raised where the program awaits it
            future.set_exception(error)

    def ended() -> None:
        try:
            loop.call_soon_threadsafe(settle)
        except RuntimeError:  # the loop was closed meanwhile, and nobody awaits it
            pass

    if not work._when_done(ended):
        settle()
    return future.__await__()


@atexit.register
def end() -> None:
    """Closes what the program has left open; if an exception has ended it, aborts it, as `with` does."""
    failed = getattr(sys, "last_type", None) is not None and not hasattr(sys, "ps1")
    _end_all(failed)
