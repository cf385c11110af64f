# Everything but GPUs: the cold start, rollouts and learner of the small presets, gates, reports, audits, and the graph itself.
#   docker build -f containers/cpu.Dockerfile -t spiral-cpu:0.1.0 .
# TORCH_INDEX: index URL of torch's CPU wheels; without it the default index's wheels come, which may bring CUDA along.
FROM python:3.11.13-slim-bookworm AS build
ARG TORCH_INDEX=""
RUN python -m venv /opt/spiral
ENV PATH=/opt/spiral/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /build
COPY containers/cpu.constraints.txt pyproject.toml README.md ./
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} --constraint cpu.constraints.txt torch
COPY spiral_lib spiral_lib
RUN pip install --constraint cpu.constraints.txt '.[flyte,elastic,eval,exact]' \
    && find /opt/spiral -name __pycache__ -prune -exec rm -rf {} +

FROM python:3.11.13-slim-bookworm
RUN useradd --uid 1000 --create-home spiral && mkdir /app && chown spiral:spiral /app
COPY --from=build /opt/spiral /opt/spiral
WORKDIR /app
COPY --chown=spiral:spiral spiral_lib spiral_lib
COPY --chown=spiral:spiral tasks tasks
COPY --chown=spiral:spiral workflows workflows
ENV PATH=/opt/spiral/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 HOME=/home/spiral \
    HF_HOME=/tmp/huggingface OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE GX_ANALYTICS_ENABLED=false
USER spiral
