"""A worker of pyfuncs that needs no packages, and does harm where its rows say so."""

# Speaks as ``registry/pyfunc/worker.py`` does; the first number of a batch says what it does.
WORKER = """
import json, os, struct, sys, time
def read():
    length = sys.stdin.buffer.read(4)
    if len(length) < 4: sys.exit(0)
    return sys.stdin.buffer.read(struct.unpack("<I", length)[0])
def write(*parts):
    for part in parts: sys.stdout.buffer.write(struct.pack("<I", len(part)) + part)
    sys.stdout.buffer.flush()
told = json.loads(read())
if told.get("die"): print("no such model", file=sys.stderr, flush=True); sys.exit(3)
if told.get("sleep"): time.sleep(3600)
if told.get("garbage"): write(b"[]")
hello = {"files_closed": told.get("closed", True), "calls_refused": True, "python": "3.11"}
write(json.dumps({"error": told["error"]} if "error" in told else hello).encode())
while True:
    rows, body = json.loads(read())["rows"], read()
    what = struct.unpack("<d", body[:8])[0]
    sys.stderr.write("x" * 200_000 + "\\n"); sys.stderr.flush()
    if what == -1: time.sleep(3600)
    elif what == -2: print("out of cheese", file=sys.stderr, flush=True); os._exit(7)
    elif what == -3: write(json.dumps({"error": "ValueError: no"}).encode())
    elif what == -4: write(json.dumps({"error": "MemoryError: ", "memory": True}).encode())
    elif what == -5: write(b'{"texts": false}', b"odd")
    elif what == -6: write(b'{"texts": true}', b'["a"]')
    elif what == -7: sys.stdout.buffer.write(struct.pack("<I", 1 << 30)); sys.stdout.buffer.flush()
    elif what == -8: write(b'{"texts": true}', json.dumps(["a", "b"]).encode())
    else: write(b'{"texts": false}', body)
"""
