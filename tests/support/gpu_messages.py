"""What CUDA, its libraries, ONNX Runtime, torch, NVML and the driver's log print, by the row."""

_ORT = " ; GPU=0 ; hostname=triton-0 ; file=cuda_execution_provider.cc ; line=172 ; expr="
_TORCH = (
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the "
    "stacktrace below might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
)
_NODE = "Non-zero status code returned while running MatMul node. Name:'/opset/MatMul' "
_XID = "NVRM: Xid (PCI:0000:3b:00): "

MESSAGES: dict[str, tuple[str, ...]] = {
    "xid-bus": (
        f"{_XID}79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "Xid 79",
    ),
    "xid-memory": (
        f"{_XID}48, An uncorrectable double bit error (DBE) has been detected on GPU",
        f"{_XID}64, pid=1896, Row Remapper: Error writing inforom",
        f"{_XID}95, pid=1896, name=tritonserver, Uncontained: FBHUB",
        "Xid 48",
        "Xid 140",
    ),
    "xid-link": (f"{_XID}74, pid=9, NVLink: fatal error detected on link 0", "Xid 149"),
    "xid-firmware": (
        f"{_XID}119, pid=2, name=tritonserver, Timeout waiting for RPC from GSP!",
        f"{_XID}62, pid=2, 0001 0002 0003",
        "Xid 46",
    ),
    "xid-recovery": (
        f"{_XID}154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
        "Xid 154 GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
    ),
    "xid-contained": (f"{_XID}94, pid=7194, name=python3, Contained: SM (0x1).", "Xid 94"),
    "xid-of-a-program": (
        f"{_XID}13, pid=3, name=python3, Graphics SM Warp Exception on (GPC 7, TPC 0, SM 0)",
        f"{_XID}31, pid=3, name=python3, Ch 0000001b, intr 00000000. MMU Fault",
        f"{_XID}63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
        "Xid 154 GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
        "Xid 43",
    ),
    "memory": (
        f"CUDA failure 2: out of memory{_ORT}cudaMalloc((void**)&p, size);",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
        f"RuntimeError: CUDA error: out of memory{_TORCH}",
        "CUDA_ERROR_OUT_OF_MEMORY: out of memory",
    ),
    "memory-of-libraries": (
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        f"CUDNN failure 4: CUDNN_STATUS_ALLOC_FAILED{_ORT}cudnnCreate(&cudnn_handle_);",
    ),
    "memory-of-hosts": (
        "onnx runtime error 6: Failed to allocate memory for requested buffer of size 1073741824",
        "OSError: [Errno 12] Cannot allocate memory",
        "std::bad_alloc",
        "engine: the memory does not suffice: Unable to allocate 3.00 GiB for an array",
        "Unable to create shared memory region: No space left on device",
        "Unable to allocate 3.00 GiB for an array with shape (402653184,) and data type float64",
        "failed to open model.onnx: [Errno 24] Too many open files",
        "OSError: [Errno 122] Disk quota exceeded: '/tmp/folderXk2/1/model.onnx'",
        "pthread_create failed: Resource temporarily unavailable",
    ),
    "assertion": (
        f"RuntimeError: CUDA error: device-side assert triggered{_TORCH}",
        f"CUDA failure 710: device-side assert triggered{_ORT}cudaStreamSynchronize(stream);",
    ),
    "not-supported": (
        "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in",
        "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasLtMatmul( ltHandle,",
        f"CUDA failure 801: operation not supported{_ORT}cudaMemAdvise(p);",
        f"CUDA error: operation not supported{_TORCH}",
    ),
    "no-kernel": (
        f"CUDA error: no kernel image is available for execution on the device{_TORCH}",
        "CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        f"CUDA failure 98: invalid device function{_ORT}cudaGetLastError();",
        "CUDA error: CUBLAS_STATUS_ARCH_MISMATCH when calling `cublasGemmEx(`",
    ),
    "driver": (
        f"CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version{_ORT}",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "Error 803: system has unsupported display driver / cuda driver combination",
        "Error 804: forward compatibility was attempted on non supported HW",
        "nvmlInit_v2: Driver/library version mismatch",
    ),
    "no-device": (
        f"CUDA failure 100: no CUDA-capable device is detected{_ORT}cudaSetDevice(info_.device_id)",
        "RuntimeError: No CUDA GPUs are available",
        "RuntimeError: Found no NVIDIA driver on your system. Please check that you have one",
        f"CUDA error: invalid device ordinal{_TORCH}",
        "nvmlInit_v2: Driver Not Loaded",
        "this Triton can't use a GPU: ONNX Runtime 1.23.0 has CUDA and could not start it",
        "this instance was promised a GPU and has none: GPU 1 is not among the 1 that torch sees",
    ),
    "libraries": (
        "libcudnn.so.9: cannot open shared object file: No such file or directory",
        "Failed to load library libonnxruntime_providers_cuda.so with error: libcublasLt.so.12",
        f"CUDNN failure 1002: CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH{_ORT}cudnnCreate(&h);",
        "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED",
        "CUDA failure 34: CUDA driver is a stub library",
    ),
    "busy": (
        f"CUDA error: CUDA-capable device(s) is/are busy or unavailable{_TORCH}",
        f"CUDA failure 802: system not yet initialized{_ORT}cudaSetDevice(0);",
        "MPS client failed to connect to the MPS control daemon or the MPS server",
    ),
    "ecc": (
        f"CUDA failure 214: uncorrectable ECC error encountered{_ORT}cudaEventQuery(event);",
        f"RuntimeError: CUDA error: uncorrectable ECC error encountered{_TORCH}",
        "CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered",
    ),
    "nvlink": (
        f"CUDA error: uncorrectable NVLink error detected during the execution{_TORCH}",
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    ),
    "lost": (
        "nvmlDeviceGetMemoryInfo: GPU is lost",
        "nvmlDeviceGetName: GPU requires reset",
        "nvmlDeviceGetName: Corrupted infoROM",
    ),
    "context": (
        f"onnx runtime error 1: {_NODE}Status Message: CUDA error cudaErrorIllegalAddress:an il",
        f"CUDA failure 700: an illegal memory access was encountered{_ORT}cudaStreamSynchronize",
        f"CUDA error: unspecified launch failure{_TORCH}",
        f"CUDA failure 702: the launch timed out and was terminated{_ORT}cudaEventSynchronize",
        "CUDA error: misaligned address",
        "CUDA error: an illegal instruction was encountered",
        "CUDA error: operation not supported on global/shared address space",
        "CUDA error: invalid program counter",
        "CUDA error: hardware stack error",
        "CUDA error: context is destroyed",
        "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error",
        "cudaErrorIllegalAddress",
    ),
    "library-state": (
        f"CUDNN failure 1: CUDNN_STATUS_NOT_INITIALIZED{_ORT}cudnnCreate(&cudnn_handle_);",
        f"CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED{_ORT}cudnnCreate(&cudnn_handle_);",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        f"CUBLAS failure 13: CUBLAS_STATUS_EXECUTION_FAILED{_ORT}cublasGemmHelper(",
    ),
    "other": (
        f"CUDA failure 999: unknown error{_ORT}cudaSetDevice(info_.device_id);",
        f"CUDA error: unknown error{_TORCH}",
        f"CUDA error: initialization error{_TORCH}",
        "CUDA failure 4: driver shutting down",
        "CUDA driver error: invalid argument",
    ),
}
OF_ALL = tuple((row, words) for row, messages in MESSAGES.items() for words in messages)

# What a Triton says on a machine that is sick, of a GPU or of something else, cut short in part.
OF_SICK_MACHINES = (
    "CUDA failure 214: uncorrectable ECC error encountered ; GPU=0",
    "CUDA failure 999: unknown error ; GPU=0",
    "CUDNN failure 1: CUDNN_STATUS_NOT_INITIALIZED",
    "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
    "CUDA failure 100: no CUDA-capable device is detected",
    "CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS failure 1: the library was not initialized",
    "[Errno 5] Input/output error",
    "Read-only file system",
    "onnx runtime error 1: pthread_create failed: Resource temporarily unavailable",
    "cannot open shared object file: libcudnn.so.9",
)

# What is said of a model, a request or Triton itself, and of no GPU.
OF_NO_GPU = (
    "InvalidProtobuf: Protobuf parsing failed",
    "ShapeInferenceError: Mismatch between number of inferred and declared dimensions",
    "Opset 23 is under development and its support is limited",
    "onnx runtime error 2: Got invalid dimensions for input: input_ids index: 1 Got: 600",
    "size mismatch for encoder.layer.0.weight",
    "shape mismatch",
    "index 3 is out of bounds",
    "queue is full: 20 tokens are held",
    "Request for unknown model: 'm.1' has no available versions",
    "Stub process 'm_0_0' is not healthy.",
    "ModuleNotFoundError: No module named 'onnxruntime'",
    "this opset is not supported",
)
