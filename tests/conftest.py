"""What all tests share: how property-based tests choose their examples.

In CI the examples are the same in every run, so that a change is judged by what it changed; by hand every run
looks somewhere else. No example has a deadline of its own: the time-out of its test is enough.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "dev")
