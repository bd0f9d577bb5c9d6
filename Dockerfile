# Ringside on Debian 12, built for the processor of the machine that builds the image:
#
#     docker build -t ringside .
#     docker run --rm -it ringside                                                  trains, as ./demo does
#     docker run --rm -it ringside ringside step all_reduce -n 4                    any command
#
# To work on the sources: .devcontainer/Dockerfile, which mounts them and has a debugger.
FROM debian:12

COPY . /ringside
WORKDIR /ringside
RUN bash -c 'source tools/lib.sh && install_what_is_missing && build release ringside ringside-bench' \
    && rm -rf /var/lib/apt/lists/*
ENV PATH="/ringside/build/release/bin:$PATH"

# A job of several ranks ends when its terminal does.
STOPSIGNAL SIGTERM
CMD ["./demo"]
