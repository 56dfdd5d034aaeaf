"""Headers of the administration of users and permissions; the user or the rules are in the body."""

from __future__ import annotations

from cometmq.wire.codes import RequestCode
from cometmq.wire.header.schema import Header, request_header


@request_header(RequestCode.AUTH_CREATE_USER)
class CreateUserRequest(Header, kw_only=True):
    """Create a user."""

    username: str | None = None


@request_header(RequestCode.AUTH_UPDATE_USER)
class UpdateUserRequest(Header, kw_only=True):
    """Change a user's password, type or status."""

    username: str | None = None


@request_header(RequestCode.AUTH_DELETE_USER)
class DeleteUserRequest(Header, kw_only=True):
    """Delete a user."""

    username: str | None = None


@request_header(RequestCode.AUTH_GET_USER)
class GetUserRequest(Header, kw_only=True):
    """Ask for a user."""

    username: str | None = None


@request_header(RequestCode.AUTH_LIST_USER)
class ListUsersRequest(Header, kw_only=True):
    """Ask for the users whose name contains a text."""

    filter: str | None = None


@request_header(RequestCode.AUTH_CREATE_ACL)
class CreateAclRequest(Header, kw_only=True):
    """Give a subject permissions."""

    subject: str | None = None


@request_header(RequestCode.AUTH_UPDATE_ACL)
class UpdateAclRequest(Header, kw_only=True):
    """Change the permissions of a subject."""

    subject: str | None = None


@request_header(RequestCode.AUTH_DELETE_ACL)
class DeleteAclRequest(Header, kw_only=True):
    """Take permissions from a subject: all, or those on a resource."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


@request_header(RequestCode.AUTH_GET_ACL)
class GetAclRequest(Header, kw_only=True):
    """Ask for the permissions of a subject."""

    subject: str | None = None


@request_header(RequestCode.AUTH_LIST_ACL)
class ListAclsRequest(Header, kw_only=True):
    """Ask for the permissions of the subjects and resources that match."""

    subject_filter: str | None = None
    resource_filter: str | None = None
