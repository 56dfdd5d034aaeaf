"""Subscriptions: how an expression is read, and when two mean the same."""

from __future__ import annotations

import pytest

from cometmq.broker.groups.subscriptions import Interests, interest_of, make_subscription
from cometmq.model.errors import ProtocolError
from cometmq.wire.bodies.heartbeat import SubscriptionData


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_nothing_and_a_star_stand_for_every_message(expression: str | None) -> None:
    assert make_subscription("T", expression, None) == SubscriptionData("T", "*")


def test_tags_are_split_and_trimmed_as_java_does_it() -> None:
    made = make_subscription("T", " TagA||  TagB\t|| 标签 ||TagA", "TAG")
    assert made.tags_set == ("TagA", "TagB", "标签")
    assert made.code_set == (2598919, 2598920, 857175)


@pytest.mark.parametrize(("expression", "kind"), [("||", "TAG"), (" ", None), ("", "SQL92"), (None, "SQL92")])
def test_an_expression_that_says_nothing_is_refused(expression: str | None, kind: str | None) -> None:
    with pytest.raises(ProtocolError):
        make_subscription("T", expression, kind)


def test_spelling_and_version_do_not_count() -> None:
    first = [make_subscription("T", "a || b", None), make_subscription("U", "*", None)]
    second = [SubscriptionData("U", "", sub_version=9), SubscriptionData("T", "b||a", sub_version=9)]
    assert interest_of(first) == interest_of(second)
    assert interest_of(first) != interest_of(first[:1])


def test_the_topic_of_retries_does_not_count() -> None:
    assert interest_of([SubscriptionData("%RETRY%g")]) == ()


def test_clients_that_read_the_same_do_not_differ() -> None:
    interests = Interests()
    same = interest_of([SubscriptionData("T")])
    interests.set("first", same)
    interests.set("second", same)
    assert interests.difference is None
    assert interests.against("third", same) is None


def test_a_client_is_compared_with_others_and_not_with_its_past() -> None:
    interests = Interests()
    interests.set("first", interest_of([SubscriptionData("T")]))
    changed = interest_of([SubscriptionData("U")])
    assert interests.against("first", changed) is None
    assert interests.against("second", changed) == (
        "client second does not subscribe to T, and client first subscribes to T with '*' (TAG)"
    )
    interests.set("first", changed)
    assert interests.difference is None


def test_a_difference_ends_with_the_client_that_made_it() -> None:
    interests = Interests()
    interests.set("first", interest_of([SubscriptionData("T")]))
    interests.set("second", interest_of([SubscriptionData("T", "a", ("a",))]))
    assert interests.difference == (
        "client first subscribes to T with '*' (TAG), and client second subscribes to T with 'a' (TAG)"
    )
    interests.drop("second")
    assert interests.difference is None
