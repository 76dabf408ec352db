# Triton for GPUs: NVIDIA's own server, which has the native ONNX Runtime backend with CUDA, started
# as Headrace's image for CPUs is. Beside its Python backend lie torch and transformers, by which
# packed engines run, and ONNX Runtime with CUDA for models that write:
#
#   make images IMAGES=triton-gpu
#
# Name the release that suits your driver (NVIDIA's support matrix) and, in production, its digest;
# docker/bases names that of our own releases:
#   IMAGE_BUILD="docker build --build-arg TRITON_IMAGE=nvcr.io/nvidia/tritonserver:26.09-py3@sha256:..."
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:26.09-py3
FROM ${TRITON_IMAGE}
COPY locks/images/triton-gpu.txt /locks/
# Triton's Python backend takes its packages from the first python3 on PATH. Of a Python that its
# stub was not built for it would find none, so that the build fails if the release has another one.
RUN python3 -c 'import sys; assert sys.version_info[:2] == (3, 12), sys.version' \
 && python3 -m venv --without-pip --system-site-packages /opt/headrace \
 && python3 -m pip --python /opt/headrace/bin/python3 install \
      --quiet --no-cache-dir --require-hashes --no-deps -r /locks/triton-gpu.txt \
 && /opt/headrace/bin/python3 -c 'import onnxruntime, torch, transformers; \
      assert torch.version.cuda and "CUDAExecutionProvider" in onnxruntime.get_available_providers(); \
      from torch.nn.attention.varlen import varlen_attn'
COPY docker/triton/start /opt/tritonserver/start
ENV HOME=/tmp OMP_NUM_THREADS=1 PATH=/opt/headrace/bin:$PATH
# The list of contracts/telemetry_off.py.
ENV DO_NOT_TRACK=1 HF_HUB_DISABLE_TELEMETRY=1 MLFLOW_DISABLE_TELEMETRY=true ORT_DISABLE_TELEMETRY=1
USER 10001:10001
EXPOSE 8000 8001 8002
# Instead of NVIDIA's entry point, which prints a banner and asks for nothing that we need.
ENTRYPOINT ["/opt/tritonserver/start"]
