"""The tensors."""

from contracts.tasks import TaskTensors
from contracts.tensors import Datatype, TensorSpec

TENSORS = TaskTensors(
    engine=TensorSpec(name="grade", datatype=Datatype.FP32, shape=(-1, -1)),
    public=(TensorSpec(name="GRADE", datatype=Datatype.FP32, shape=(-1,)),),
)
