"""The outcomes of a put."""

from cometmq.store.status import PutStatus


def test_a_message_whose_copies_are_in_doubt_is_stored_all_the_same() -> None:
    """B5"""
    assert {status.name for status in PutStatus if status.is_stored} == {
        "PUT_OK",
        "FLUSH_DISK_TIMEOUT",
        "FLUSH_SLAVE_TIMEOUT",
        "SLAVE_NOT_AVAILABLE",
    }
