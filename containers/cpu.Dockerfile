# Everything but GPUs: the cold start, rollouts and learner of the small presets, gates, reports, audits, and the graph itself.
#   docker build -f containers/cpu.Dockerfile -t spiral-cpu:0.1.0 .
# TORCH_INDEX: index URL of torch's CPU wheels; without it the default index's wheels come, which may bring CUDA along.
FROM python:3.11.13-slim-bookworm AS build
ARG TORCH_INDEX=""
RUN python -m venv /opt/spiral
ENV PATH=/opt/spiral/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY containers/cpu.constraints.txt pyproject.toml README.md ./
# Only torch itself comes from that index: it need not hold the pinned versions of what torch requires.
RUN pip install --no-compile ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --no-deps --constraint cpu.constraints.txt torch
COPY spiral_lib spiral_lib
# torch's own tests and C++ headers are 190 MB that nothing here uses.
RUN pip install --no-compile --constraint cpu.constraints.txt '.[flyte,elastic,eval,exact,ladder,lora]' \
    && cd /opt/spiral/lib/python3.11/site-packages && rm -rf torch/test torch/bin/test_* torch/include
COPY tasks /opt/spiral/lib/python3.11/site-packages/tasks
COPY workflows /opt/spiral/lib/python3.11/site-packages/workflows

FROM python:3.11.13-slim-bookworm
# /root is where `pyflyte register` unpacks shipped code if it is not told otherwise.
RUN useradd --uid 1000 --create-home spiral && mkdir /app && chown spiral:spiral /app /root
COPY --from=build /opt/spiral /opt/spiral
# Shows that all of it can be imported, and leaves the bytecode, which the tasks' user may not write. Not in the first stage:
# COPY rounds the files' times, and bytecode of another time is not used.
RUN HOME=/tmp/home /opt/spiral/bin/python -P -c \
        'import lm_eval, openskill, peft, pyspiel, flytekitplugins.kfpytorch, workflows.audit, workflows.schedules' \
    && rm -rf /tmp/*
# Shipped code is unpacked here, into an empty folder, and goes before the image's own.
WORKDIR /app
ENV PATH=/opt/spiral/bin:$PATH PYTHONUNBUFFERED=1 HOME=/home/spiral \
    HF_HOME=/tmp/huggingface OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE GX_ANALYTICS_ENABLED=false
# A number: Kubernetes refuses names where pods must not run as root.
USER 1000
