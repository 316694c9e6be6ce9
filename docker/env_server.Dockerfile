# The environment server: FastAPI, SQLite and the shipped data, without torch. Build in the
# repository's root:
#   docker build -f docker/env_server.Dockerfile -t sqlenv-env-server .
#   docker run --rm -p 8000:8000 sqlenv-env-server

FROM python:3.11-slim AS packages
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
WORKDIR /build
# Without the sources this installs the dependencies only, so code changes don't rebuild this layer.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN --mount=type=cache,target=/root/.cache/pip pip install -c constraints.txt '.[server,docs,mcp]'

FROM python:3.11-slim
ENV PATH=/opt/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 SQLENV_HOST=0.0.0.0 SQLENV_PORT=8000
RUN groupadd --gid 10001 sqlenv \
    && useradd --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin sqlenv
WORKDIR /app
COPY --from=packages /opt/venv /opt/venv
COPY shared/ shared/
COPY env_server/ env_server/
COPY data/databases/ data/databases/
COPY data/questions/ data/questions/
# A checkout's files may be readable by their owner only.
RUN python -m compileall -q shared env_server && chmod -R a+rX /app
USER sqlenv
EXPOSE 8000
CMD ["python", "-m", "env_server"]
