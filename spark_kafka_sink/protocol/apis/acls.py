"""DescribeAcls, CreateAcls and DeleteAcls. Types and operations are Kafka's codes.

v0, which has no patterns, is not supported; Kafka 4 has removed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.protocol.api import Api, ApiKey
from spark_kafka_sink.protocol.fields import Message, message, wire
from spark_kafka_sink.protocol.wire_types import INT8, INT16, INT32, STRING, ArrayOf

# DescribeAcls (29): the ACLs that match a filter, by resource.


@message
class DescribeAclsRequest(Message):
    """A filter. None and the code of ANY match everything."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class AclDescription(Message):
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DescribeAclsResource(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    acls: Sequence[AclDescription] = wire(ArrayOf(AclDescription), default=())


@message
class DescribeAclsResponse(Message):
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    resources: Sequence[DescribeAclsResource] = wire(ArrayOf(DescribeAclsResource), default=())


DESCRIBE_ACLS = Api(ApiKey.DESCRIBE_ACLS, 1, 3, 2, DescribeAclsRequest, DescribeAclsResponse)


# CreateAcls (30)


@message
class AclCreation(Message):
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    resource_pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class CreateAclsRequest(Message):
    creations: Sequence[AclCreation] = wire(ArrayOf(AclCreation))


@message
class AclCreationResult(Message):
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)


@message
class CreateAclsResponse(Message):
    """The result of CreateAcls. `results` are in the order of the request."""

    throttle_time_ms: int = wire(INT32, default=0)
    results: Sequence[AclCreationResult] = wire(ArrayOf(AclCreationResult), default=())


CREATE_ACLS = Api(ApiKey.CREATE_ACLS, 1, 3, 2, CreateAclsRequest, CreateAclsResponse)


# DeleteAcls (31)


@message
class DeleteAclsFilter(Message):
    """A filter, with the fields of DescribeAclsRequest."""

    resource_type_filter: int = wire(INT8)
    resource_name_filter: str | None = wire(STRING, nullable_since=0)
    pattern_type_filter: int = wire(INT8)
    principal_filter: str | None = wire(STRING, nullable_since=0)
    host_filter: str | None = wire(STRING, nullable_since=0)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DeleteAclsRequest(Message):
    filters: Sequence[DeleteAclsFilter] = wire(ArrayOf(DeleteAclsFilter))


@message
class DeleteAclsMatchingAcl(Message):
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable_since=0)
    resource_type: int = wire(INT8)
    resource_name: str = wire(STRING)
    pattern_type: int = wire(INT8)
    principal: str = wire(STRING)
    host: str = wire(STRING)
    operation: int = wire(INT8)
    permission_type: int = wire(INT8)


@message
class DeleteAclsFilterResult(Message):
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable_since=0, default=None)
    matching_acls: Sequence[DeleteAclsMatchingAcl] = wire(ArrayOf(DeleteAclsMatchingAcl), default=())


@message
class DeleteAclsResponse(Message):
    """The result of DeleteAcls. `filter_results` are in the order of the request's filters."""

    throttle_time_ms: int = wire(INT32, default=0)
    filter_results: Sequence[DeleteAclsFilterResult] = wire(ArrayOf(DeleteAclsFilterResult), default=())


DELETE_ACLS = Api(ApiKey.DELETE_ACLS, 1, 3, 2, DeleteAclsRequest, DeleteAclsResponse)
