#!/bin/sh
# Build the container image, start it, send a message and read it back, and stop it.
#   deploy/try-image.sh [TAG]
set -eu
tag=${1:-cometmq}
name=cometmq-try-$$
engine=${CONTAINER_ENGINE:-$(command -v podman || command -v docker || true)}
if [ -z "$engine" ]; then
	echo "no container engine: install podman or docker, or name one in CONTAINER_ENGINE" >&2
	exit 3
fi
cd "$(dirname "$0")/.."
"$engine" build -f deploy/Containerfile -t "$tag" .
trap '"$engine" rm -f "$name" >/dev/null 2>&1 || true' EXIT
"$engine" run -d --name "$name" "$tag" >/dev/null

inside() { "$engine" exec -e COMETMQ_NAMESRV=127.0.0.1:9876 "$name" cometmq "$@"; }

tries=0
until inside topic create try-image >/dev/null 2>&1; do
	tries=$((tries + 1))
	if [ "$tries" -ge 60 ]; then
		echo "the container is not ready after a minute; this is its log:" >&2
		"$engine" logs "$name" >&2
		exit 1
	fi
	sleep 1
done
inside message send try-image "hello from $tag" >/dev/null
inside message tail try-image --limit 1 | grep "hello from $tag"
"$engine" stop -t 20 "$name" >/dev/null
echo "the image $tag works"
