# Rollouts with vLLM, the learner with DeepSpeed, evaluation of large models. Needs NVIDIA drivers on the node, no CUDA there.
#   docker build -f containers/gpu.Dockerfile -t spiral-gpu:0.1.0 .
FROM python:3.11.13-slim-bookworm AS build
RUN python -m venv /opt/spiral
ENV PATH=/opt/spiral/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 DS_BUILD_OPS=0
WORKDIR /build
COPY containers/gpu.constraints.txt pyproject.toml README.md ./
# DeepSpeed looks at torch while it is built, so torch comes first.
RUN pip install --constraint gpu.constraints.txt torch setuptools wheel
COPY spiral_lib spiral_lib
RUN pip install --constraint gpu.constraints.txt '.[flyte,elastic,gpu,eval]' \
    && find /opt/spiral -name __pycache__ -prune -exec rm -rf {} +

FROM python:3.11.13-slim-bookworm
# Triton compiles its launchers at run time and needs a C compiler for it.
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home spiral && mkdir /app && chown spiral:spiral /app
COPY --from=build /opt/spiral /opt/spiral
WORKDIR /app
COPY --chown=spiral:spiral spiral_lib spiral_lib
COPY --chown=spiral:spiral tasks tasks
COPY --chown=spiral:spiral workflows workflows
# CUDA's compiler comes as a Python package; kernels that are built on the way are cached where any user may write.
ENV PATH=/opt/spiral/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 HOME=/home/spiral \
    CUDA_HOME=/opt/spiral/lib/python3.11/site-packages/nvidia/cu13 \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility \
    HF_HOME=/tmp/huggingface TORCH_EXTENSIONS_DIR=/tmp/torch_extensions TRITON_CACHE_DIR=/tmp/triton VLLM_CACHE_ROOT=/tmp/vllm \
    VLLM_NO_USAGE_STATS=1 VLLM_ENABLE_V1_MULTIPROCESSING=0 GX_ANALYTICS_ENABLED=false
USER spiral
