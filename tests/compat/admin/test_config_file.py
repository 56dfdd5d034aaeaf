"""The configuration file of a name server: what an update leaves in it, and who can start from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.apache import ApacheNamesrv, Server
from tests.compat.ask import GET_CONFIG, SUCCESS, UPDATE_CONFIG, ask
from tests.compat.client.normal import without_places
from tests.compat.cluster import MakeNamesrv

# A setting that this release does not know, as a file has it that a later or another release also reads.
FOREIGN = {"aSettingOfTheFuture": "1"}


def update(server: Server, text: str) -> None:
    assert ask(server.address, UPDATE_CONFIG, body=text.encode()).code == SUCCESS


def settings_of(server: Server) -> dict[str, str]:
    lines = ask(server.address, GET_CONFIG).text.splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_an_update_is_kept_in_the_file_as_apache_keeps_it(tmp_path: Path, make_namesrv: MakeNamesrv) -> None:
    """N9: all settings, sorted, foreign ones too; the text before the update is in a second file."""
    kept: list[tuple[str, str]] = []
    for name, make in {"apache": ApacheNamesrv, "ours": make_namesrv}.items():
        with make(tmp_path / name, FOREIGN) as server:
            update(server, "orderMessageEnable=true\n")
            update(server, "waitSecondsForService=7\n")
            file = server.home / "server.properties"
            places = {str(server.home): "home", str(server.port): "port"}
            texts = [path.read_text() for path in (file, file.with_name("server.properties.bak"))]
            kept.append((without_places(texts[0], places), without_places(texts[1], places)))
    apache, ours = kept
    assert "waitSecondsForService=7\n" in apache[0]
    assert "waitSecondsForService=45\n" in apache[1]
    assert ours == apache


@pytest.mark.parametrize("writer_is_ours", [False, True], ids=["apache-then-ours", "ours-then-apache"])
def test_one_starts_from_the_file_that_the_other_wrote(
    tmp_path: Path, make_namesrv: MakeNamesrv, writer_is_ours: bool
) -> None:
    """N2, N9: a name server takes the place of the other with its port, its files and its settings."""
    order: list[MakeNamesrv] = (
        [make_namesrv, ApacheNamesrv] if writer_is_ours else [ApacheNamesrv, make_namesrv]
    )
    with order[0](tmp_path) as writer:
        update(writer, "orderMessageEnable=true\nscanNotActiveBrokerInterval=7000\n")
        written = settings_of(writer)
    with order[1](tmp_path, port=writer.port) as reader:
        assert settings_of(reader) == written
    assert written["orderMessageEnable"] == "true"
    assert written["scanNotActiveBrokerInterval"] == "7000"
