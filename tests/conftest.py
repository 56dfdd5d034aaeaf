"""What all tests share: how property-based tests choose their examples, and that SIGINT is not ignored.

In CI the examples are the same in every run, so that a change is judged by what it changed; by hand every run
looks somewhere else. No example has a deadline of its own: the time-out of its test is enough.

A shell starts what it runs in the background with SIGINT ignored, and processes hand that on to theirs. Tests
that interrupt a command would then wait for ever, so that whoever runs them would decide whether they pass.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
