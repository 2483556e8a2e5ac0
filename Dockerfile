# The images of redeliver. make image builds both.
#
#   redeliver  the command without a shell or libc, as user 65532. The last stage, and so the default.
#   examples   the programs that integration/compose runs beside it: worker and orders.
#
# GO_IMAGE may be any image with the Go version of go.mod and CA certificates.
ARG GO_IMAGE=docker.io/library/golang:1.26.8-bookworm@sha256:a688600ca24f8a4d3ca77f95b0dd40704a9fc787c826660eb7ba0b641b8b175d

FROM ${GO_IMAGE} AS build
# Each module is built with its own go.mod, as go install does, without integration and its dependencies.
ENV CGO_ENABLED=0 GOWORK=off GOFLAGS="-trimpath -buildvcs=false -mod=readonly" GOTOOLCHAIN=local
WORKDIR /src
# The modules change rarely, so they have a layer of their own.
COPY go.mod go.sum ./
COPY cmd/redeliver/go.mod cmd/redeliver/go.sum cmd/redeliver/
RUN cd cmd/redeliver && go mod download
COPY . .
# Empty unless it is a release; then the command's version is (devel).
ARG VERSION=
ARG REVISION=
RUN go build -C cmd/redeliver -o /out/redeliver \
      -ldflags "-s -w -X github.com/redeliver/redeliver/cmd/redeliver/internal/cli.release=${VERSION} -X github.com/redeliver/redeliver/cmd/redeliver/internal/cli.commit=${REVISION}" . && \
    go build -ldflags "-s -w" -o /out/worker ./examples/worker && \
    go build -ldflags "-s -w" -o /out/orders ./examples/orders
# Names for user and group 65532.
RUN printf 'redeliver:x:65532:65532::/:/sbin/nologin\n' >/out/passwd && printf 'redeliver:x:65532:\n' >/out/group

FROM scratch AS examples
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/passwd /out/group /etc/
COPY --from=build /out/worker /out/orders /
USER 65532:65532
ENTRYPOINT ["/worker"]

FROM scratch AS redeliver
ARG VERSION=
ARG REVISION=
LABEL org.opencontainers.image.title="redeliver" \
      org.opencontainers.image.description="Retries, delays and dead-letter queues over Kafka, RabbitMQ and SQS" \
      org.opencontainers.image.source="https://github.com/redeliver/redeliver" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/passwd /out/group /etc/
COPY --from=build /src/LICENSE /src/THIRD_PARTY_LICENSES.md /licenses/
COPY --from=build /out/redeliver /redeliver
USER 65532:65532
# The usual ports of run --health and of the console.
EXPOSE 8081 8377
ENTRYPOINT ["/redeliver"]
