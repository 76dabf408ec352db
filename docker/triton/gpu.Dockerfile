# Triton for GPUs: NVIDIA's own server, which has the native ONNX Runtime backend with CUDA, started
# as Headrace's image for CPUs is:
#
#   make images IMAGES=triton-gpu
#
# Name the release that suits your driver (NVIDIA's support matrix) and, in production, its digest;
# docker/bases names that of our own releases:
#   IMAGE_BUILD="docker build --build-arg TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.06-py3@sha256:..."
ARG TRITON_IMAGE=nvcr.io/nvidia/tritonserver:25.06-py3
FROM ${TRITON_IMAGE}
COPY docker/triton/start /opt/tritonserver/start
ENV HOME=/tmp OMP_NUM_THREADS=1
USER 10001:10001
EXPOSE 8000 8001 8002
# Instead of NVIDIA's entry point, which prints a banner and asks for nothing that we need.
ENTRYPOINT ["/opt/tritonserver/start"]
