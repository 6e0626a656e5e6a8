# rxjobs and its command. Your own app: FROM this, COPY it, and CMD ["run", "your.module:app"].
FROM python:3.13.9-slim-trixie AS build

WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY rxjobs ./rxjobs
RUN python -m venv /opt/rxjobs \
    && /opt/rxjobs/bin/pip install --no-cache-dir '.[fast]'

FROM python:3.13.9-slim-trixie

RUN useradd --system --uid 10001 --no-create-home rxjobs
COPY --from=build /opt/rxjobs /opt/rxjobs
ENV PATH=/opt/rxjobs/bin:$PATH \
    PYTHONUNBUFFERED=1
WORKDIR /app
USER 10001:10001

# SIGTERM drains: give `docker stop` longer than RXJOBS_SHUTDOWN_GRACE, 25 seconds
STOPSIGNAL SIGTERM
ENTRYPOINT ["rxjobs"]
CMD ["run", "rxjobs.demo.shop:app"]
