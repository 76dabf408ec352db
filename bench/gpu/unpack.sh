#!/bin/bash
# Unpacks the pieces that are here; call it again when more have come. What is unpacked is kept.
#
# TORCH_PYTHON: the machine's own Python 3.12 that has torch; python3 if it is not set.
# UNPACKED: where to unpack; the folder "unpacked" beside this script if it is not set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=${UNPACKED:-$here/unpacked}
mkdir -p "$to"

extract() {
  if command -v xz >/dev/null; then
    tar -xJ -C "$to" --no-same-owner
  else  # Python has the same in its library
    python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1])' "$to"
  fi
}

for sum in "$here"/piece-*/*.sha256; do
  [ -e "$sum" ] || { echo "There are no pieces beside $0."; exit 1; }
  name=$(basename "$sum" .sha256)
  mark=$to/.$name.$(cut -c 1-16 "$sum")
  [ -e "$mark" ] && continue
  parts=("$here"/piece-*/"$name".??of??)
  if [ "${#parts[@]}" -ne "$((10#${parts[0]##*of}))" ]; then
    echo "$name: a piece of it is missing"
    continue
  fi
  cat "${parts[@]}" | sha256sum --check --quiet "$sum" || { echo "$name: a piece is damaged"; exit 1; }
  cat "${parts[@]}" | extract
  touch "$mark"
  echo "$name: unpacked"
done

python=$to/python/bin/python3.12
[ -x "$python" ] || { echo "The piece with Python is missing."; exit 1; }
if ! "$python" -P -c 'import bz2, ctypes, lzma, ssl, sqlite3, uuid, zlib' 2>/dev/null; then
  cp -n "$to"/python/libraries/* "$to/python/lib/"
fi
exec "$python" -P -m bench.gpu.unpacked "$to" "${TORCH_PYTHON:-python3}"
