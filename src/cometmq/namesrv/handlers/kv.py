"""Key-value configuration: put, get, delete, list."""

from __future__ import annotations

from cometmq.model.names import ORDER_TOPIC_NAMESPACE
from cometmq.namesrv.state import NamesrvState
from cometmq.remoting.handler import Answer, handles
from cometmq.wire.bodies.json_body import encode_kv_table
from cometmq.wire.codes import RequestCode, ResponseCode
from cometmq.wire.headers.namesrv import (
    DeleteKVConfigRequest,
    GetKVConfigRequest,
    GetKVConfigResponse,
    GetKVListByNamespaceRequest,
    PutKVConfigRequest,
)


class KvHandlers:
    """Requests about the key-value configuration."""

    def __init__(self, state: NamesrvState) -> None:
        self._state = state

    @handles(RequestCode.PUT_KV_CONFIG, PutKVConfigRequest)
    async def put(self, header: PutKVConfigRequest) -> Answer:
        """Store a value; answered when it is on disk."""
        await self._state.kv.put(header.namespace, header.key, header.value)
        self._changed(header.namespace, header.key)
        return Answer()

    @handles(RequestCode.GET_KV_CONFIG, GetKVConfigRequest)
    def get(self, header: GetKVConfigRequest) -> Answer:
        value = self._state.kv.get(header.namespace, header.key)
        if value is not None:
            return Answer(header=GetKVConfigResponse(value=value))
        remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
        return Answer(ResponseCode.QUERY_NOT_FOUND, header=GetKVConfigResponse(), remark=remark)

    @handles(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequest)
    async def delete(self, header: DeleteKVConfigRequest) -> Answer:
        """Remove a value; one that is not there is no error."""
        await self._state.kv.delete(header.namespace, header.key)
        self._changed(header.namespace, header.key)
        return Answer()

    @handles(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequest)
    def list_namespace(self, header: GetKVListByNamespaceRequest) -> Answer:
        table = self._state.kv.namespace(header.namespace)
        if table is None:
            remark = f"No config item, Namespace: {header.namespace}"
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark=remark)
        return Answer(body=encode_kv_table(dict(table)))

    def _changed(self, namespace: str, key: str) -> None:
        if namespace == ORDER_TOPIC_NAMESPACE:  # routes show it
            self._state.routes.topic_changed(key)
