"""The messages of the Remote Execution API and of what it stands on (ByteStream, long-running
operations), as far as lazyck uses them.

The classes are made at run time from the tables below: on PyPI there is no maintained package of
these messages that does not bring a whole server. What travels is decided by the numbers and types
of the fields alone. Fields that are left out are skipped by protobuf's parser. The classes have a
pool of their own, so that they do not meet those of another library in the same process.
"""

from functools import lru_cache
from types import SimpleNamespace
from typing import Any

from lazyck.remote.extras import need

SHA256 = 1  # DigestFunction
ZSTD = 1  # Compressor
EXECUTING, COMPLETED = 3, 4  # ExecutionStage

_PACKAGE = "lazyck.reapi"
# Message → fields, each "name number type", with `*` behind the type of a repeated field. A type
# that is not one of protobuf's is a message.
_MESSAGES = {
    "Any": "type_url 1 string, value 2 bytes",
    "Duration": "seconds 1 int64, nanos 2 int32",
    "Status": "code 1 int32, message 2 string",
    "Digest": "hash 1 string, size_bytes 2 int64",
    # what is executed
    "Property": "name 1 string, value 2 string",
    "Platform": "properties 1 Property*",
    "EnvironmentVariable": "name 1 string, value 2 string",
    "Command": "arguments 1 string*, environment_variables 2 EnvironmentVariable*, output_files 3 string*,"
    " platform 5 Platform, output_paths 7 string*",
    "Action": "command_digest 1 Digest, input_root_digest 2 Digest, timeout 6 Duration, do_not_cache 7 bool,"
    " platform 10 Platform",
    "FileNode": "name 1 string, digest 2 Digest, is_executable 4 bool",
    "DirectoryNode": "name 1 string, digest 2 Digest",
    "SymlinkNode": "name 1 string, target 2 string",
    "Directory": "files 1 FileNode*, directories 2 DirectoryNode*, symlinks 3 SymlinkNode*",
    # what comes of it
    "OutputFile": "path 1 string, digest 2 Digest, is_executable 4 bool, contents 5 bytes",
    "Metadata": "worker 1 string",
    "ActionResult": "output_files 2 OutputFile*, exit_code 4 int32, stdout_raw 5 bytes, stdout_digest 6 Digest,"
    " stderr_raw 7 bytes, stderr_digest 8 Digest, execution_metadata 9 Metadata",
    "GetActionResultRequest": "instance_name 1 string, action_digest 2 Digest",
    "ExecuteRequest": "instance_name 1 string, skip_cache_lookup 3 bool, action_digest 6 Digest",
    "WaitExecutionRequest": "name 1 string",
    "ExecuteResponse": "result 1 ActionResult, cached_result 2 bool, status 3 Status, message 5 string",
    "ExecuteOperationMetadata": "stage 1 int32",
    "Operation": "name 1 string, metadata 2 Any, done 3 bool, error 4 Status, response 5 Any",
    "CancelOperationRequest": "name 1 string",
    "Empty": "",
    # the storage
    "FindMissingBlobsRequest": "instance_name 1 string, blob_digests 2 Digest*",
    "FindMissingBlobsResponse": "missing_blob_digests 2 Digest*",
    "Update": "digest 1 Digest, data 2 bytes, compressor 3 int32",
    "BatchUpdateBlobsRequest": "instance_name 1 string, requests 2 Update*",
    "Updated": "digest 1 Digest, status 2 Status",
    "BatchUpdateBlobsResponse": "responses 1 Updated*",
    "ReadRequest": "resource_name 1 string, read_offset 2 int64, read_limit 3 int64",
    "ReadResponse": "data 10 bytes",
    "WriteRequest": "resource_name 1 string, write_offset 2 int64, finish_write 3 bool, data 10 bytes",
    "WriteResponse": "committed_size 1 int64",
    # what the server can do
    "GetCapabilitiesRequest": "instance_name 1 string",
    "CacheCapabilities": "digest_functions 1 int32*, max_batch_total_size_bytes 4 int64,"
    " supported_compressors 6 int32*, supported_batch_update_compressors 7 int32*",
    "ExecutionCapabilities": "digest_function 1 int32, exec_enabled 2 bool, digest_functions 5 int32*",
    "ServerCapabilities": "cache_capabilities 1 CacheCapabilities, execution_capabilities 2 ExecutionCapabilities",
}
_REAPI = "build.bazel.remote.execution.v2"
_STORAGE = f"{_REAPI}.ContentAddressableStorage"
# Method → its path, and the messages that go and come, with `*` behind those of a stream.
METHODS = {
    "get_capabilities": (f"{_REAPI}.Capabilities/GetCapabilities", "GetCapabilitiesRequest", "ServerCapabilities"),
    "find_missing": (f"{_STORAGE}/FindMissingBlobs", "FindMissingBlobsRequest", "FindMissingBlobsResponse"),
    "update": (f"{_STORAGE}/BatchUpdateBlobs", "BatchUpdateBlobsRequest", "BatchUpdateBlobsResponse"),
    "read": ("google.bytestream.ByteStream/Read", "ReadRequest", "ReadResponse*"),
    "write": ("google.bytestream.ByteStream/Write", "WriteRequest*", "WriteResponse"),
    "get_result": (f"{_REAPI}.ActionCache/GetActionResult", "GetActionResultRequest", "ActionResult"),
    "execute": (f"{_REAPI}.Execution/Execute", "ExecuteRequest", "Operation*"),
    "wait": (f"{_REAPI}.Execution/WaitExecution", "WaitExecutionRequest", "Operation*"),
    "cancel": ("google.longrunning.Operations/CancelOperation", "CancelOperationRequest", "Empty"),
}


@lru_cache(maxsize=1)
def messages() -> Any:
    """Return an object that has each message's class as an attribute. Raises `RemoteError` if
    protobuf is not installed."""
    descriptor = need("google.protobuf.descriptor_pb2", "reapi", "a compile service")
    pools = need("google.protobuf.descriptor_pool", "reapi", "a compile service")
    factory = need("google.protobuf.message_factory", "reapi", "a compile service")
    kind = descriptor.FieldDescriptorProto
    file = descriptor.FileDescriptorProto(name=f"{_PACKAGE}.proto", package=_PACKAGE, syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for word in filter(None, fields.split(",")):
            field_name, number, type_name = word.split()
            is_repeated = type_name.endswith("*")
            type_name = type_name.rstrip("*")
            field = message.field.add(name=field_name, number=int(number))
            field.label = kind.LABEL_REPEATED if is_repeated else kind.LABEL_OPTIONAL
            if type_name in _MESSAGES:
                field.type, field.type_name = kind.TYPE_MESSAGE, f".{_PACKAGE}.{type_name}"
            else:
                field.type = getattr(kind, f"TYPE_{type_name.upper()}")
    pool = pools.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return SimpleNamespace(**{
        name: factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    })  # fmt: skip
