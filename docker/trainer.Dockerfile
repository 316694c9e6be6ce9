# The trainer: torch, transformers, TRL, the offline base model, and what `play` needs to host a
# database. Build in the repository's root:
#   docker build -f docker/trainer.Dockerfile -t sqlenv-trainer .
# Its summaries name the checkout's commit; without a .git folder: --build-arg GIT_COMMIT=...
# torch from the default index may be a large CUDA build. For the CPU build name PyTorch's index:
#   --build-arg TORCH_PIP_FLAGS="--index-url URL-OF-PYTORCHS-CPU-WHEELS"

FROM python:3.11-slim AS packages
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /build
COPY constraints.txt ./
ARG TORCH_PIP_FLAGS=""
# torch comes first, so that no other package chooses its build.
RUN --mount=type=cache,target=/root/.cache/pip pip install ${TORCH_PIP_FLAGS} -c constraints.txt torch
# Without the sources this installs the dependencies only, so code changes don't rebuild this layer.
COPY pyproject.toml README.md LICENSE ./
RUN --mount=type=cache,target=/root/.cache/pip pip install -c constraints.txt '.[server,trainer,lora,tensorboard,api]'

# The commit, from .git or the argument. Its own stage, so that a commit rebuilds one small layer.
FROM python:3.11-slim AS revision
ARG GIT_COMMIT=""
RUN --mount=type=bind,target=/context \
    cd /context/.git 2>/dev/null || cd /tmp; \
    branch=$(sed -n 's/^ref: //p' HEAD 2>/dev/null); \
    packed=$(sed -n "s#^\([0-9a-f]*\) ${branch:-none}\$#\1#p" packed-refs 2>/dev/null); \
    echo "${GIT_COMMIT:-$(cat "${branch:-HEAD}" 2>/dev/null || echo "$packed")}" > /revision

FROM python:3.11-slim
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp USER=sqlenv HF_HOME=/cache/huggingface MPLCONFIGDIR=/tmp/matplotlib
# /cache holds models from the Hub. All users can write to it: as_owner.py may choose any of them.
RUN groupadd --gid 10001 sqlenv \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin sqlenv \
    && mkdir -m 1777 /cache \
    && install -d -o sqlenv -g sqlenv /app/runs
WORKDIR /app
COPY --from=packages /opt/venv /opt/venv
COPY docker/as_owner.py /usr/local/bin/as_owner
COPY shared/ shared/
COPY env_server/ env_server/
COPY trainer/ trainer/
COPY sqlenv/ sqlenv/
COPY data/ data/
# A checkout's files may be readable by their owner only.
RUN python -m compileall -q shared env_server trainer data && chmod -R a+rX /app /usr/local/bin/as_owner
COPY --from=revision /revision ./
USER sqlenv
ENTRYPOINT ["python", "/usr/local/bin/as_owner", "/app/runs"]
CMD ["python", "-m", "trainer", "train"]
