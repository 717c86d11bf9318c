# Valkey from the wheel of the extra `local`, for machines that cannot pull an image. The context is the wheel's folder.
ARG BASE
FROM ${BASE}
RUN useradd --system --uid 999 valkey && install -d -o valkey /data
COPY bin/valkey-server bin/valkey-cli /usr/local/bin/
USER valkey
WORKDIR /data
