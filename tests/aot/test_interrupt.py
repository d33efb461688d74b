"""A Ctrl-C that a library swallows stops the build at its next stage."""

import contextlib
import os
import signal

import pytest

from tcbuild.aot.cli.interrupt import heeded
from tcbuild.aot.progress import Event


def test_a_swallowed_interrupt_is_raised_at_the_next_stage() -> None:
    seen: list[Event] = []
    event = Event(stage="capture", job="job", index=1, total=1)
    before = signal.getsignal(signal.SIGINT)
    with heeded(seen.append) as progress:
        progress(event)
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        with pytest.raises(KeyboardInterrupt):
            progress(event)
    assert seen == [event]
    assert signal.getsignal(signal.SIGINT) is before
