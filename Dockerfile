# The atlas with its browser libraries and default weights inside: it needs no network when it runs.
#
#   docker build -t openmodelatlas .
#   docker run --rm -p 127.0.0.1:8000:8000 -e ATLAS_TOKEN=a-secret-of-yours \
#       -v atlas-data:/data --read-only --tmpfs /tmp openmodelatlas
#
# then open http://127.0.0.1:8000/?token=a-secret-of-yours. A container listens on all its addresses, so it wants to be
# told who may use it: ATLAS_TOKEN lets in who has it, ATLAS_PUBLIC=1 lets everybody read recorded runs and start none.
# Under another name than localhost or an address, add -e ATLAS_ALLOWED_HOST=NAME. It stops within 10 seconds of SIGTERM.
#
# /data is the one volume: weights, synced sources, runs. A new named volume is filled from the image; a mounted
# folder of the host starts empty, and the weights are then fetched into it (user 10001 must be able to write there).
#
# PIP_ARGS: options for pip. Plain pip brings a torch with CUDA, several GB; to leave that out, name the package
# index of PyTorch's CPU builds: --build-arg PIP_ARGS="--extra-index-url ADDRESS".

ARG PYTHON=3.12

FROM python:${PYTHON}-slim AS build
ARG PIP_ARGS=""
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/atlas
WORKDIR /src
# The dependencies first, from the files that name them: a change of the atlas's own code leaves this layer alone.
COPY pyproject.toml constraints.txt ./
RUN python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['dependencies'], sep='\n')" \
        > requirements.txt \
    && /opt/atlas/bin/pip install ${PIP_ARGS} --constraint constraints.txt --requirement requirements.txt
COPY . .
RUN /opt/atlas/bin/pip install --no-deps .
ENV ATLAS_DATA_DIR=/data
RUN /opt/atlas/bin/atlas weights fetch && /opt/atlas/bin/atlas warm

FROM python:${PYTHON}-slim
# git: for `atlas sources sync`.
RUN apt-get update -q \
    && apt-get install -q -y --no-install-recommends git \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin atlas
COPY --from=build /opt/atlas /opt/atlas
COPY --from=build --chown=10001:10001 /data /data
# No bytecode is written (the root file system may be read-only; pip has compiled all there is).
ENV PATH=/opt/atlas/bin:$PATH HOME=/data ATLAS_DATA_DIR=/data ATLAS_HOST=0.0.0.0 ATLAS_PORT=8000 \
    PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["python", "-c", \
    "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['ATLAS_PORT'] + '/healthz', timeout=4)"]
ENTRYPOINT ["atlas"]
CMD ["serve"]
