"""Reads a folder of safetensors files by the format's description, and nothing else: no package, nothing of Tutti's."""
import json
import pathlib
import struct

BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I8": 1, "U8": 1}


def load_file(path):
    """{name: (dtype, shape, bytes)}; AssertionError: it is not what the format says."""
    content = path.read_bytes()
    length, = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    data = content[8 + length:]
    header.pop("__metadata__", None)
    tensors, end = {}, 0
    for name, its in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, next_end = its["data_offsets"]
        assert begin == end, f"{path}: a hole before {name}"
        end, elements = next_end, 1
        for dimension in its["shape"]:
            elements *= dimension
        assert end - begin == elements * BYTES[its["dtype"]], f"{path}: {name} has another size"
        assert (8 + length + begin) % BYTES[its["dtype"]] == 0, f"{path}: {name} is not aligned"
        tensors[name] = its["dtype"], its["shape"], data[begin:end]
    assert end == len(data), f"{path}: bytes behind the last tensor"
    return tensors


def load(folder, kind="model"):
    """All tensors by the index; kind "optimizer": those that only Tutti's part of it names."""
    index = json.loads((pathlib.Path(folder) / "model.safetensors.index.json").read_text())
    weight_map = index["weight_map"] if kind == "model" else index["metadata"]["tutti"]["optimizer_map"]
    files = {name: load_file(pathlib.Path(folder) / name) for name in set(weight_map.values())}
    assert sum(map(len, files.values())) == len(weight_map), "tensors that the index does not name"
    if kind == "model":
        assert index["metadata"]["total_size"] == sum(len(t[2]) for f in files.values() for t in f.values())
    return {name: files[file][name] for name, file in weight_map.items()}
