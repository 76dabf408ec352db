"""Names, datatypes and shapes of tensors, in the words of the Open Inference Protocol."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class Datatype(StrEnum):
    """The datatypes of the Open Inference Protocol that Headrace's tensors use."""

    BYTES = "BYTES"
    BOOL = "BOOL"
    UINT8 = "UINT8"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"


class TensorSpec(BaseModel):
    """A tensor's name, datatype and shape; -1 stands for a dimension that a request sets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
