# The image of a node. `make image` builds it with the commit in it; ops/compose/compose.yml runs three of it.
# What is installed is what was tested: requirements/*.txt have the hashes of all files.
FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements/dist.txt requirements/run.txt requirements/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/dist.txt
RUN python -m venv /opt/stockade \
 && /opt/stockade/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/run.txt
COPY . .
# The wheel has the bytes of the release when both are the release's: tools/dist.py.
ARG COMMIT=unknown
ARG SOURCE_DATE_EPOCH=315532800
RUN if [ ! -e COMMIT ]; then echo "$COMMIT" > COMMIT; fi \
 && /opt/build/bin/python -m build --wheel --no-isolation --outdir /src/wheel \
 && /opt/stockade/bin/pip install --no-cache-dir --disable-pip-version-check --no-deps /src/wheel/stockade-*.whl \
 && /opt/stockade/bin/pip uninstall --yes --disable-pip-version-check pip setuptools

FROM python:3.11-slim
LABEL org.opencontainers.image.title="Stockade" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --system --gid 10001 stockade \
 && useradd --system --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/stockade stockade \
 && install --directory --owner=stockade --group=stockade --mode=0750 /var/lib/stockade
COPY --from=build /opt/stockade /opt/stockade
ENV PATH=/opt/stockade/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    STOCKADE_DATA_DIR=/var/lib/stockade \
    STOCKADE_HTTP=0.0.0.0:7101 \
    STOCKADE_RAFT_LISTEN=0.0.0.0:7201 \
    STOCKADE_LOG_FORMAT=json
VOLUME /var/lib/stockade
EXPOSE 7101 7201
USER 10001:10001
WORKDIR /var/lib/stockade
# SIGTERM: the node hands its leaderships over and ends, within 25 s. Docker kills after 10: `docker stop --time 30`.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=4 CMD ["stockade", "probe"]
ENTRYPOINT ["stockade"]
CMD ["serve"]
