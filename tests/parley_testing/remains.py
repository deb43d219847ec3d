"""What a node has on its disk and in the kernel, told apart: somebody's sandboxes, and warm ones that wait in the pool."""
import glob
import os
import struct
from collections import namedtuple

STARTING, LIVE, WARM = 1, 2, 3
Record = namedtuple("Record", "slot state init id")


def newest(data):
    """A file holds one record or two; the second counts when it was written a turn after the first."""
    half = len(data) // 2
    if len(data) < 256 or len(data) % 2 or data[:4] != data[half:half + 4] or (data[-15] - data[half - 15]) % 256 != 1:
        return data
    return data[half:]


def records(state):
    """The records that can be read (sandboxd/launcher/records.h)."""
    found = []
    for path in glob.glob(f"{state}/sandboxd/records/*"):
        try:
            with open(path, "rb") as file:
                head = newest(file.read())[:128]
        except OSError:
            continue  # it has just gone
        if len(head) < 128:
            continue
        _, _, kind, slot, _, init = struct.unpack_from("<5Ii", head)
        found.append(Record(slot, kind, init, head[96:128].split(b"\0")[0].decode(errors="replace")))
    return found


def pool(state):
    """The records of sandboxes that are nobody's: warm, or being born to be."""
    return [record for record in records(state) if not record.id]


def living(state):
    """Those of somebody's sandboxes, by id."""
    return {record.id: record for record in records(state) if record.id}


def held(state):
    """What is there of somebody's sandboxes, or of none that is known: folders, records, locks of slots."""
    warm = {str(record.slot) for record in pool(state)}
    found = [path for folder in ("run", "records") for path in glob.glob(f"{state}/sandboxd/{folder}/*")]
    for path in glob.glob("/run/parley/slots/*"):
        try:
            with open(path, errors="replace") as lock:
                if lock.readline() == os.path.realpath(state) + "\n":
                    found.append(path)
        except OSError:
            pass
    return [path for path in found if os.path.basename(path) not in warm]
