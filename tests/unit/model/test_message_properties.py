"""Property names, and which of them an application may set."""

import pytest

from cometmq.model import message_properties as names
from cometmq.model.errors import MessageError


@pytest.mark.parametrize("name", sorted(names.RESERVED))
def test_a_name_of_the_system_is_refused(name: str) -> None:
    with pytest.raises(MessageError, match="written by the system"):
        names.check_user_property(name, "value")


USER_SETTABLE = {
    names.SHARDING_KEY,
    names.CHECK_IMMUNITY_TIME_IN_SECONDS,
    names.TRACE_CONTEXT,
    names.INNER_MULTI_DISPATCH,
    names.TRANSACTION_ID,
    names.TRANSACTION_CHECK_TIMES,
    names.INNER_NUM,
}
"""System names that an application may set nevertheless."""


@pytest.mark.parametrize("name", sorted(USER_SETTABLE))
def test_a_name_with_a_meaning_that_users_may_set_is_accepted(name: str) -> None:
    names.check_user_property(name, "value")


def test_every_name_is_either_reserved_or_settable() -> None:
    separators = {names.NAME_VALUE_SEPARATOR, names.PROPERTY_SEPARATOR, names.KEY_SEPARATOR}
    public = {name: value for name, value in vars(names).items() if name.isupper() and name[0] != "_"}
    declared = {value for value in public.values() if isinstance(value, str)}

    assert declared - separators == names.RESERVED | USER_SETTABLE
    assert not names.RESERVED & USER_SETTABLE


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\x00\x1f "])
def test_blank_names_and_values_are_refused_as_java_judges_them(blank: str) -> None:
    with pytest.raises(MessageError, match="name must not be blank"):
        names.check_user_property(blank, "value")
    with pytest.raises(MessageError, match="'colour' must not be blank"):
        names.check_user_property("colour", blank)


def test_a_space_of_another_script_is_not_blank_to_java() -> None:
    names.check_user_property("colour", "\u3000")


@pytest.mark.parametrize("separator", ["\x01", "\x02"])
def test_separators_are_refused_in_names_and_values(separator: str) -> None:
    with pytest.raises(MessageError, match="separator"):
        names.check_user_property(f"a{separator}b", "value")
    with pytest.raises(MessageError, match="separator"):
        names.check_user_property("a", f"val{separator}ue")


def test_a_value_that_is_no_string_is_refused_with_its_type() -> None:
    with pytest.raises(MessageError, match="'age' must be a string, not int"):
        names.check_user_property("age", 42)  # type: ignore[arg-type]
