"""The key-value configuration of name servers: `cometmq cluster kv-get`, `kv-set` and `kv-delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cometmq.cli.common.connect import NO_LINK, AsJson, Link, Yes, ask
from cometmq.cli.common.output import confirm, print_pairs, shown, told
from cometmq.model.errors import NotFoundError

if TYPE_CHECKING:
    from cometmq.client.admin.admin import Admin

Namespace = Annotated[str, typer.Argument(help="The namespace.", metavar="NAMESPACE")]
Key = Annotated[str, typer.Argument(help="The key.", metavar="KEY")]


def kv_get(
    namespace: Namespace,
    key: Annotated[str | None, typer.Argument(help="Only this key.", metavar="[KEY]")] = None,
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Show the key-value configuration of the name servers.

    Examples:
      cometmq cluster kv-get ORDER_TOPIC_CONFIG -n 127.0.0.1:9876
      cometmq cluster kv-get Settings colour --json

    The exit code is 4 if there is nothing.
    """
    found = ask(link, lambda admin: _values(admin, namespace, key))
    document = {"namespace": namespace, "values": found}
    shown(document, lambda whole: print_pairs(found.items()), as_json=as_json)


async def _values(admin: Admin, namespace: str, key: str | None) -> dict[str, str]:
    if key is None:
        found = dict(sorted((await admin.kv_configs(namespace)).items()))
    else:
        value = await admin.kv_config(namespace, key)
        found = {} if value is None else {key: value}
    if not found:
        what = "is empty" if key is None else f"has no key {key}"
        raise NotFoundError(f"namespace {namespace} {what}; store a value with: cometmq cluster kv-set")
    return found


def kv_set(
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(help="The value.", metavar="VALUE")],
    link: Link = NO_LINK,
    as_json: AsJson = False,
) -> None:
    """Store a value in the key-value configuration of every name server.

    Examples:
      cometmq cluster kv-set Settings colour blue -n 127.0.0.1:9876
      cometmq cluster kv-set Settings colour blue --json
    """
    ask(link, lambda admin: admin.put_kv_config(namespace, key, value))
    document = {"namespace": namespace, "key": key, "value": value}
    told(document, f"{key} of {namespace} is {value} now", as_json=as_json)


def kv_delete(
    namespace: Namespace, key: Key, yes: Yes = False, link: Link = NO_LINK, as_json: AsJson = False
) -> None:
    """Delete a value from the key-value configuration of every name server.

    Examples:
      cometmq cluster kv-delete Settings colour -n 127.0.0.1:9876
      cometmq cluster kv-delete Settings colour --yes --json

    The exit code is 4 if there is no such key.
    """
    value = ask(link, lambda admin: _values(admin, namespace, key))[key]
    confirm(f"Delete {key} of {namespace}, which is {value}?", yes=yes)
    ask(link, lambda admin: admin.delete_kv_config(namespace, key))
    document = {"namespace": namespace, "key": key, "value": value}
    told(document, f"{key} of {namespace} was deleted", as_json=as_json)
