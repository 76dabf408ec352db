"""Writes ``gateway/dialects/open_inference.proto``, the definition of what the gRPC port speaks.

It is made of the descriptors that the gateway itself uses: those of ``tritonclient``, which has no
such file. ``python -P tests/support/proto_text.py`` writes it.
"""

from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2
from tritonclient.grpc import model_config_pb2, service_pb2

FILE = Path(__file__).resolve().parents[2] / "gateway" / "dialects" / "open_inference.proto"
_HEAD = """\
// The Open Inference Protocol over gRPC with Triton's extensions, as the gateway speaks it.
// Made of tritonclient's descriptors by tests/support/proto_text.py; not edited by hand.
// Calls that Headrace does not offer end as UNIMPLEMENTED, with a sentence.

syntax = "proto3";

package inference;
"""
_Field = descriptor_pb2.FieldDescriptorProto
_KINDS = {
    _Field.TYPE_DOUBLE: "double",
    _Field.TYPE_FLOAT: "float",
    _Field.TYPE_INT64: "int64",
    _Field.TYPE_UINT64: "uint64",
    _Field.TYPE_INT32: "int32",
    _Field.TYPE_UINT32: "uint32",
    _Field.TYPE_BOOL: "bool",
    _Field.TYPE_STRING: "string",
    _Field.TYPE_BYTES: "bytes",
}


def text() -> str:
    """Both files of the protocol as one."""
    lines: list[str] = []
    for module in (service_pb2, model_config_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        for service in file.service:
            lines += ["", *_service(service)]
        for enum in file.enum_type:
            lines += ["", *_enum(enum)]
        for message in file.message_type:
            lines += ["", *_message(message)]
    return _HEAD + "\n".join(lines) + "\n"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)


def _service(service: descriptor_pb2.ServiceDescriptorProto) -> Iterator[str]:
    yield f"service {service.name} {{"
    for method in service.method:
        asked, given = (
            f"({'stream ' if streams else ''}{name.removeprefix('.inference.')})"
            for streams, name in (
                (method.client_streaming, method.input_type),
                (method.server_streaming, method.output_type),
            )
        )
        yield f"  rpc {method.name} {asked} returns {given};"
    yield "}"


def _enum(enum: descriptor_pb2.EnumDescriptorProto) -> Iterator[str]:
    yield f"enum {enum.name} {{"
    for value in enum.value:
        yield f"  {value.name} = {value.number};"
    yield "}"


def _message(message: descriptor_pb2.DescriptorProto) -> Iterator[str]:
    maps = {one.name: one for one in message.nested_type if one.options.map_entry}
    yield f"message {message.name} {{"
    for enum in message.enum_type:
        yield from _indented(_enum(enum))
    for nested in message.nested_type:
        if nested.name not in maps:
            yield from _indented(_message(nested))
    for index, choice in enumerate(message.oneof_decl):
        yield f"  oneof {choice.name} {{"
        for field in message.field:
            if field.HasField("oneof_index") and field.oneof_index == index:
                yield f"    {_kind(field)} {field.name} = {field.number};"
        yield "  }"
    for field in message.field:
        if not field.HasField("oneof_index"):
            yield f"  {_declared(field, maps)} {field.name} = {field.number};"
    yield "}"


def _declared(
    field: descriptor_pb2.FieldDescriptorProto, maps: dict[str, descriptor_pb2.DescriptorProto]
) -> str:
    entry = maps.get(field.type_name.rpartition(".")[2]) if field.type_name else None
    if entry is not None:
        key, value = entry.field
        return f"map<{_kind(key)}, {_kind(value)}>"
    return f"repeated {_kind(field)}" if field.label == _Field.LABEL_REPEATED else _kind(field)


def _kind(field: descriptor_pb2.FieldDescriptorProto) -> str:
    return _KINDS[field.type] if field.type in _KINDS else field.type_name.removeprefix(".")


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
