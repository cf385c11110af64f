# Rollouts with vLLM, the learner with DeepSpeed, evaluation of large models. Needs NVIDIA drivers on the node, no CUDA there.
#   docker build -f containers/gpu.Dockerfile -t spiral-gpu:0.1.0 .
FROM python:3.11.13-slim-bookworm AS build
RUN python -m venv /opt/spiral
ENV PATH=/opt/spiral/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 DS_BUILD_OPS=0
WORKDIR /build
COPY containers/gpu.constraints.txt pyproject.toml README.md ./
# In a layer of its own: changes of the code do not fetch torch and CUDA again.
RUN pip install --no-compile --constraint gpu.constraints.txt torch
COPY spiral_lib spiral_lib
# CUDA's packages lack two names under which kernels that are built at run time look for its runtime.
RUN pip install --no-compile --constraint gpu.constraints.txt '.[flyte,elastic,gpu,eval,exact,ladder,lora]' \
    && cd /opt/spiral/lib/python3.11/site-packages && rm -rf torch/test torch/bin/test_* \
    && ln -s lib nvidia/cu13/lib64 && ln -s libcudart.so.13 nvidia/cu13/lib/libcudart.so
COPY tasks /opt/spiral/lib/python3.11/site-packages/tasks
COPY workflows /opt/spiral/lib/python3.11/site-packages/workflows

FROM python:3.11.13-slim-bookworm
# Triton compiles its launchers at run time and needs a C compiler for it.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ && rm -rf /var/lib/apt/lists/*
# /root is where `pyflyte register` unpacks shipped code if it is not told otherwise.
RUN useradd --uid 1000 --create-home spiral && mkdir /app && chown spiral:spiral /app /root
COPY --from=build /opt/spiral /opt/spiral
# Shows that all of it can be imported, and leaves the bytecode, which the tasks' user may not write. Not in the first stage:
# COPY rounds the files' times, and bytecode of another time is not used.
RUN HOME=/tmp/home /opt/spiral/bin/python -P -c \
        'import deepspeed, lm_eval, openskill, peft, pyspiel, vllm, flytekitplugins.kfpytorch, workflows.audit, workflows.schedules' \
    && rm -rf /tmp/*
# Shipped code is unpacked here, into an empty folder, and goes before the image's own.
WORKDIR /app
# CUDA's compiler comes as a Python package; kernels that are built on the way are cached where any user may write.
ENV PATH=/opt/spiral/bin:$PATH PYTHONUNBUFFERED=1 HOME=/home/spiral \
    CUDA_HOME=/opt/spiral/lib/python3.11/site-packages/nvidia/cu13 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HF_HOME=/tmp/huggingface TORCH_EXTENSIONS_DIR=/tmp/torch_extensions TRITON_CACHE_DIR=/tmp/triton VLLM_CACHE_ROOT=/tmp/vllm \
    VLLM_NO_USAGE_STATS=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 GX_ANALYTICS_ENABLED=false
# A number: Kubernetes refuses names where pods must not run as root.
USER 1000
