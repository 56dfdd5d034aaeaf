"""Tags and SQL as brokers get them."""

from __future__ import annotations

import pytest

from cometmq.client.subscription import Sql, is_tags, subscription_of
from cometmq.model.errors import ClientError


@pytest.mark.parametrize("expression", ["*", "", "  ", " * "])
def test_nothing_and_a_star_mean_everything(expression: str) -> None:
    subscription = subscription_of("orders", expression, 7)
    assert (subscription.sub_string, subscription.tags_set, subscription.code_set) == ("*", (), ())
    assert subscription.sub_version == 7
    assert is_tags(subscription)


def test_tags_are_split_trimmed_and_hashed_as_java_does() -> None:
    """C1."""
    subscription = subscription_of("orders", " paid ||open|| ||paid", 1)
    assert subscription.tags_set == ("paid", "open")
    assert subscription.code_set == (3433164, 3417674)
    assert subscription.sub_string == " paid ||open|| ||paid"


def test_sql_goes_to_the_broker_as_it_is() -> None:
    """B8."""
    subscription = subscription_of("orders", Sql("amount > 10"), 1)
    assert (subscription.expression_type, subscription.sub_string) == ("SQL92", "amount > 10")
    assert subscription.tags_set == ()
    assert not is_tags(subscription)


@pytest.mark.parametrize("expression", ["||", " || ", Sql(" ")])
def test_an_expression_that_says_nothing_is_refused(expression: str | Sql) -> None:
    with pytest.raises(ClientError, match=r"names no tag|is empty"):
        subscription_of("orders", expression, 1)


@pytest.mark.parametrize(
    ("expression", "right"),
    [
        ("a,b", "write 'a || b'"),
        ("a && b", "write 'a || b'"),
        ("a | b", "write 'a || b'"),
        ("a;b ; c", r"write 'a \|\| b \|\| c'"),
        ("amount > 5", r"write Sql\('amount > 5'\)"),
        ("TAGS IN ('a','b')", r"write Sql\("),
    ],
)
def test_other_separators_and_conditions_are_refused_with_the_right_form(expression: str, right: str) -> None:
    with pytest.raises(ClientError, match=right.replace(" || ", r" \|\| ")):
        subscription_of("orders", expression, 1)


@pytest.mark.parametrize("wrong", [print, 7, None, ["a"]])
def test_an_expression_is_no_listener_and_no_number(wrong: object) -> None:
    with pytest.raises(ClientError, match="a listener is given as listener="):
        subscription_of("orders", wrong, 1)  # type: ignore[arg-type]
