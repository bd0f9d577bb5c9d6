# Ringside in a small image, for x86-64 and 64-bit Arm: the wheel, installed in Debian 12.
#
#     docker build -t ringside .                               needs BuildKit, or podman
#     docker run --rm -it ringside                             a shell, where `ringside train -n 4` trains
#     docker run --rm -it ringside ringside step all_reduce -n 4
#     docker build --platform linux/arm64 -t ringside .        on any machine: it is cross-compiled
#
# To work on the sources: .devcontainer/Dockerfile, which mounts them and has a debugger.

# Of the machine that builds, also where the image is for another one: nothing is compiled under emulation.
FROM --platform=$BUILDPLATFORM debian:12 AS wheel
ARG TARGETARCH
COPY . /ringside
WORKDIR /ringside
RUN case ${TARGETARCH:-$(dpkg --print-architecture)} in arm64) machine=aarch64 ;; *) machine=x86_64 ;; esac \
    && tools/build-wheel $machine

FROM debian:12-slim
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=bind,from=wheel,source=/ringside/dist,target=/wheels \
    python3 -m venv /opt/ringside && /opt/ringside/bin/pip install --no-cache-dir --no-index /wheels/*.whl
ENV PATH="/opt/ringside/bin:$PATH"
WORKDIR /root

# A job of several ranks ends when its terminal does.
STOPSIGNAL SIGTERM
CMD ["bash"]
