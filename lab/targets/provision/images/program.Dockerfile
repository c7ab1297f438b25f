# A proxy or a controller that is one program, on BASE, for clusters that reach no registry: what scripts/airgap-images builds.
#
#   docker build --file program.Dockerfile --build-arg PROGRAM=NAME --tag lab/NAME:dev CONTEXT
#
# CONTEXT holds this file and the program. As in the official images, a container's args alone are the program's.
ARG BASE=docker.io/library/debian:trixie-slim@sha256:a29215f6a35e51e22adffa17f89e9d2ef06214e64a2bad10d765c46aea49f11f

FROM ${BASE}
ARG PROGRAM
COPY ${PROGRAM} /usr/local/bin/
# What was copied must run here: one linked against another libc would only be noticed on the cluster.
RUN "$PROGRAM" version || "$PROGRAM" --version
ENV PROGRAM=${PROGRAM}
ENTRYPOINT ["sh", "-c", "exec \"$PROGRAM\" \"$@\"", "sh"]
