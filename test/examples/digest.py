"""The figures of digest-folder, computed by other means: python3 digest.py FOLDER writes them as JSON."""

import hashlib
import json
import os
import stat
import sys

COUNTS = ("files", "bytes", "links", "skipped", "unreadable")


def digest(folder):
    total = dict.fromkeys(COUNTS, 0)
    whole = hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        try:
            if stat.S_ISLNK(mode):
                total["links"] += 1
            elif stat.S_ISDIR(mode):
                sha256, counts = digest(path)
                whole.update(sha256.encode() + b"  " + name + b"/\0")
                for count in COUNTS:
                    total[count] += counts[count]
            elif stat.S_ISREG(mode):
                with open(path, "rb") as file:
                    content = file.read()
                whole.update(hashlib.sha256(content).hexdigest().encode() + b"  " + name + b"\0")
                total["files"] += 1
                total["bytes"] += len(content)
            else:
                total["skipped"] += 1
        except PermissionError:
            total["unreadable"] += 1
    return whole.hexdigest(), total


sha256, counts = digest(os.fsencode(sys.argv[1]))
print(json.dumps({"sha256": sha256, **counts}))
