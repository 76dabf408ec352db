"""gRPC's own clients of health and of reflection."""

import json
import sys

import grpc
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

with grpc.insecure_channel(sys.argv[2]) as channel:
    status = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest()).status
    definitions = ProtoReflectionDescriptorDatabase(channel)
    services = list(definitions.get_services())
    pool = DescriptorPool(definitions)
    service = pool.FindServiceByName("inference.GRPCInferenceService")
    infer = service.methods_by_name["ModelInfer"]
    fields = [field.name for field in infer.input_type.fields]
print(
    json.dumps(
        {
            "status": health_pb2.HealthCheckResponse.ServingStatus.Name(status),
            "services": services,
            "infer": fields,
        }
    )
)
