"""Every option of a client has a sentence, in its help and on the page of options."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import cometmq
import cometmq.aio
from cometmq.client.option_page import page
from cometmq.client.options import KEYWORDS, options_of

ROOT = Path(__file__).parents[3]
CLIENTS = {
    "Admin": cometmq.ClientOptions,
    "Producer": cometmq.ProducerOptions,
    "TransactionProducer": cometmq.ProducerOptions,
    "PushConsumer": cometmq.PushOptions,
    "PullConsumer": cometmq.PullOptions,
    "PopConsumer": cometmq.PopOptions,
}


@pytest.mark.parametrize(
    "settings",
    [
        cometmq.ClientSettings,
        cometmq.ProducerSettings,
        cometmq.ConsumerSettings,
        cometmq.PushSettings,
        cometmq.PullSettings,
        cometmq.PopSettings,
    ],
)
def test_every_field_of_settings_has_a_sentence_of_its_own(settings: type[cometmq.ClientSettings]) -> None:
    options = {each.name: each for each in options_of(settings)}
    assert list(options) == list(settings.__struct_fields__)
    for name, option in options.items():
        assert option.meaning.endswith("."), name


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("module", [cometmq, cometmq.aio])
def test_the_help_of_a_client_lists_every_option_with_its_default(module: object, name: str) -> None:
    client = getattr(module, name)
    text = inspect.getdoc(client) or ""
    fixed = {"group", "settings", "options"}
    keywords = inspect.signature(client).parameters.keys() - fixed
    assert keywords <= KEYWORDS.keys()
    for option in {*keywords, *CLIENTS[name].__annotations__}:
        assert f"\n- `{option}` (" in text
    assert text.count("\n- `") == len(keywords) + len(CLIENTS[name].__annotations__)
    assert "- `call_timeout_ms` (3000): For calls without a timeout of their own." in text


def test_the_page_of_options_is_what_the_declarations_say() -> None:
    """Written again with `python -m cometmq.client.option_page > docs/OPTIONS.md`."""
    assert (ROOT / "docs/OPTIONS.md").read_text(encoding="utf-8") == page()


def test_importing_a_client_reads_no_source() -> None:
    script = (
        "import linecache\n"
        "linecache.getlines = None\n"
        "import cometmq.aio\n"
        "cometmq.Producer, cometmq.PopConsumer, cometmq.aio\n"
        "try:\n    cometmq.Producer.__doc__\nexcept TypeError:\n    print('now')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.stdout == "now\n", ran.stderr
