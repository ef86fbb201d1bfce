# Two images: `server` (planner with console, loaders, constructors) and `trainer` (the client and examples, no server).
# Classic syntax, so that every builder takes it: no mounts in RUN, no heredocs, no linked copies.

FROM node:22-slim AS console
WORKDIR /build/console/ui
COPY console/ui/package.json console/ui/package-lock.json ./
RUN npm ci --no-audit --no-fund --loglevel=error
COPY console/ui ./
RUN npm exec -- vite build --outDir /build/bundle --emptyOutDir --logLevel warn

FROM python:3.11-slim AS wheel
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY console/hatch_build.py console/hatch_build.py
COPY migrations migrations
COPY client client
COPY flight flight
COPY server server
COPY console/loadmaster_console console/loadmaster_console
COPY --from=console /build/bundle console/loadmaster_console/bundle
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

# What a process runs as: a user without a shell, and folders of its own where volumes are mounted.
FROM python:3.11-slim AS base
ENV PATH=/opt/loadmaster/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
RUN groupadd --gid 10001 loadmaster \
    && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/loadmaster --shell /usr/sbin/nologin loadmaster \
    && install -d -m 0750 -o loadmaster -g loadmaster /var/lib/loadmaster /etc/loadmaster /etc/loadmaster/tls \
        /etc/loadmaster/tokens /etc/loadmaster/authority
WORKDIR /var/lib/loadmaster

# The dependencies are a layer of their own: a change of the code does not fetch them again.
FROM base AS server
COPY pyproject.toml /tmp/pyproject.toml
RUN python -m venv /opt/loadmaster \
    && python -c "import tomllib; p = tomllib.load(open('/tmp/pyproject.toml', 'rb'))['project']; e = p['optional-dependencies']; print(*p['dependencies'], *e['flight'], *(d for d in e['server'] if not d.startswith('loadmaster')), *e['postgres'], sep='\n')" > /tmp/requirements.txt \
    && pip install --no-cache-dir -r /tmp/requirements.txt
COPY --from=wheel /wheels /tmp/wheels
RUN pip install --no-cache-dir --no-deps /tmp/wheels/*.whl && rm -r /tmp/wheels
ENV NUMBA_CACHE_DIR=/var/lib/loadmaster/numba
USER 10001:10001
EXPOSE 8700 8710 8720 9100
ENTRYPOINT ["loadmaster"]
CMD ["--help"]

# EXTRAS=[torch] trains examples/train_gpt.py too; it is several GB where the package index has only builds with CUDA.
FROM base AS trainer
ARG EXTRAS=
COPY --from=wheel /wheels /tmp/wheels
RUN python -m venv /opt/loadmaster \
    && for wheel in /tmp/wheels/*.whl; do pip install --no-cache-dir "$wheel$EXTRAS" || exit 1; done && rm -r /tmp/wheels
COPY examples/train_gpt.py examples/train_numpy.py /examples/
USER 10001:10001
ENTRYPOINT ["python"]
CMD ["/examples/train_numpy.py", "--help"]
