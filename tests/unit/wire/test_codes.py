"""The numbers of the protocol are those of Apache RocketMQ 5.3.3, as its own classes say them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cometmq.wire import codes
from cometmq.wire.codes import LanguageCode, RequestCode, ResponseCode, version_name


class JavaNumbers(msgspec.Struct, rename="camel"):
    """The part of `header-classes.json` that is about numbers."""

    request_codes: dict[str, int]
    response_codes: dict[str, int]
    languages: dict[str, int]
    versions: dict[str, int]
    current_version: int


FACTS = Path(__file__).parents[2] / "data" / "header-classes.json"
JAVA = msgspec.json.decode(FACTS.read_bytes(), type=JavaNumbers)


def test_request_codes_are_those_of_java() -> None:
    assert {code.name: code.value for code in RequestCode} == JAVA.request_codes


def test_response_codes_are_those_of_java() -> None:
    assert {code.name: code.value for code in ResponseCode} == JAVA.response_codes


def test_languages_are_those_of_java() -> None:
    assert {language.name: language.value for language in LanguageCode} == JAVA.languages


def test_no_number_has_two_names() -> None:
    for numbers in (RequestCode, ResponseCode, LanguageCode):
        assert len(numbers.__members__) == len(set(numbers))


def test_we_report_the_version_of_java() -> None:
    assert JAVA.current_version == codes.CURRENT
    assert version_name(codes.CURRENT) == "V5_3_3"


def test_versions_that_decide_something_have_the_ordinal_of_java() -> None:
    declared = {
        name: value for name, value in vars(codes).items() if name.startswith("V") and name[1:2].isdigit()
    }
    assert len(declared) == 9
    assert declared == {name: JAVA.versions[name] for name in declared}


def test_every_version_is_named_as_java_names_it() -> None:
    assert {version_name(ordinal): ordinal for ordinal in range(len(JAVA.versions))} == JAVA.versions


@pytest.mark.parametrize("ordinal", [codes.HIGHER_VERSION, codes.HIGHER_VERSION + 1, 2**31 - 1])
def test_a_version_above_the_list_is_named_as_higher(ordinal: int) -> None:
    assert version_name(ordinal) == "HIGHER_VERSION"


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        version_name(-1)
