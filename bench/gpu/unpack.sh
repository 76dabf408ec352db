#!/bin/bash
# Unpacks the pieces that are here; call it again when more have come. What is unpacked is kept.
#
# TORCH_PYTHON: the machine's own Python 3.12 that has torch; python3 if it is not set.
# UNPACKED: where to unpack; the folder "unpacked" beside this script if it is not set.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
to=${UNPACKED:-$here/unpacked}
mkdir -p "$to"
python=$to/python/bin/python3.12

extract() {  # the kind of archive, whose bytes are on standard input
  if [ "$1" = zst ]; then  # the first archive brought what unpacks it
    "$python" -P -c 'import sys, tarfile, zstandard
plain = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(sys.stdin.buffer)
tarfile.open(fileobj=plain, mode="r|").extractall(sys.argv[1], filter="fully_trusted")' "$to"
  elif command -v xz >/dev/null; then
    tar -xJ -C "$to" --no-same-owner
  else  # Python has the same in its library
    python3 -c 'import sys, tarfile
tarfile.open(fileobj=sys.stdin.buffer, mode="r|xz").extractall(sys.argv[1])' "$to"
  fi
}

unpack() {  # the digest of an archive, of which all pieces may be here
  local sum=$1 name mark parts
  name=$(basename "$sum" .sha256)
  mark=$to/.$name.$(cut -c 1-16 "$sum")
  [ -e "$mark" ] && return
  parts=("$here"/piece-*/"$name".??of??)
  if [ "${#parts[@]}" -ne "$((10#${parts[0]##*of}))" ]; then
    echo "$name: a piece of it is missing"
    return
  fi
  cat "${parts[@]}" | sha256sum --check --quiet "$sum" || { echo "$name: a piece is damaged"; exit 1; }
  cat "${parts[@]}" | extract "${name##*.}"
  touch "$mark"
  echo "$name: unpacked"
}

for sum in "$here"/piece-*/*.tar.xz.sha256; do
  [ -e "$sum" ] && unpack "$sum"
done
[ -x "$python" ] || { echo "The piece with Python is missing."; exit 1; }
if ! "$python" -P -c 'import bz2, ctypes, lzma, ssl, sqlite3, uuid, zlib' 2>/dev/null; then
  cp -n "$to"/python/libraries/* "$to/python/lib/"
fi
for sum in "$here"/piece-*/*.tar.zst.sha256; do
  [ -e "$sum" ] && unpack "$sum"
done
exec "$python" -P -m bench.gpu.unpacked "$to" "${TORCH_PYTHON:-python3}"
