"""Ending on SIGTERM and SIGINT."""

import signal
import threading


def stop_on_signals() -> threading.Event:
    """Returns an event that SIGTERM and SIGINT set; call it in the main thread.

    The handler sets it from a thread of its own: it runs in the main thread, perhaps inside this
    very event's ``wait``, whose lock is not reentrant.
    """
    stop = threading.Event()

    def handle(number: int, frame: object) -> None:
        threading.Thread(target=stop.set, name="stop", daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    return stop
