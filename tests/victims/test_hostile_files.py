"""Files that claim more than they hold are refused before what they claim is allocated."""

from __future__ import annotations

import io
import json
import os
import textwrap
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from adv_wrappers.adversaries.director import load_director
from adv_wrappers.errors import AdvWrappersError, CardError
from adv_wrappers.utils.reading import members, parse_json, read_bytes
from adv_wrappers.victims import load_victim
from adv_wrappers.victims.auxiliary_networks import Critic
from tests.every_case import every_case
from tests.processes import python
from tests.victims.sb3.test_victim import BOX, DICT, SMALL, TWO, VECTOR, model, rewrite

sb3 = pytest.importorskip("stable_baselines3")

CARD = {
    "environment": {"id": "CartPole-v1"},
    "network": {"kind": "q-mlp", "activation": "relu"},
    "observation": {"mean": None, "std": None},
}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """The bytes of a zip as SB3 writes it."""
    path = tmp_path_factory.mktemp("good") / "model.zip"
    model(sb3.PPO, VECTOR, BOX, SMALL).save(path)
    return path.read_bytes()


@pytest.fixture
def zipped(good, tmp_path):
    path = tmp_path / "model.zip"
    path.write_bytes(good)
    return path


def edit(path, **changes):
    rewrite(path, "data", lambda data: json.dumps(json.loads(data) | changes))


def space(kind, **about):
    home = {"Box": "box", "Discrete": "discrete", "MultiBinary": "multi_binary", "Dict": "dict"}[kind]
    return {":type:": f"<class 'gymnasium.spaces.{home}.{kind}'>", ":serialized:": ""} | about


def box(shape):
    return space("Box", _shape=shape, low="[0. 0.]", high="[1. 1.]", dtype="float32")


DATA = {
    "a box of 4e8": ({"observation_space": box([400_000_000])}, "400000000 elements, at most"),
    "a bit for everyone": ({"observation_space": space("MultiBinary", n="8000000000")}, "8000000000 elements"),
    "a dictionary of boxes": (
        {"observation_space": space("Dict", spaces="{" + ", ".join(
            f"'{i}': Box(0, 255, (1000, 1000, 4), uint8)" for i in range(50)) + "}")},
        "elements, at most",
    ),
    "Discrete(3e7)": ({"observation_space": space("Discrete", n="30000000")}, "expected .* of shape"),
    "wide layers": ({"policy_kwargs": {"net_arch": [30000, 30000]}}, "the weights are not those of"),
    "many layers": ({"policy_kwargs": {"net_arch": {"pi": [[1] * 1000] * 20, "vf": []}}}, "expected weights of"),
}  # fmt: skip


@every_case("name", DATA)
def test_data(name, zipped):
    changes, message = DATA[name]
    edit(zipped, **changes)
    with pytest.raises(AdvWrappersError, match=message) as found:
        load_victim(f"sb3:{zipped}")
    assert len(str(found.value)) < 2000


def test_deep_and_long_json():
    for text in ("[" * 10**6, "9" * 10**6, '{"a": ' + "9" * 400 + "}", "[" + "[]," * 6 * 10**6):
        with pytest.raises(CardError, match="cannot read card"):
            parse_json(text.encode(), "card.json")


def deflated(path, name, content):
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)


def test_what_inflates_without_end(tmp_path):
    path = tmp_path / "model.zip"
    for member in ("data", "policy.pth"):
        deflated(path, member, bytes(2**24))
    with pytest.raises(CardError, match=r"model.zip: 33554432 bytes, at most 1000000 are read"):
        load_victim(f"sb3:{path}", max_bytes=10**6)


def test_a_size_that_lies(tmp_path):
    """The table of contents says 8 bytes, the stream inflates to 16 MiB: only the 8 are ever unpacked."""
    path = tmp_path / "model.zip"
    deflated(path, "data", bytes(2**24))
    deflated(path, "policy.pth", b"x")
    data = path.read_bytes().replace((2**24).to_bytes(4, "little"), (8).to_bytes(4, "little"))
    import tracemalloc

    tracemalloc.start()
    with pytest.raises(CardError, match="CRC"):
        members(data, "it", ["data"])
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


@every_case("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_without_a_bound(method, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w", method) as archive:
        archive.writestr("data", b"{}")
        archive.writestr("policy.pth", b"")
    with pytest.raises(CardError, match="compressed by method"):
        load_victim(f"sb3:{tmp_path / 'a.zip'}")


def test_weights_that_state_more_than_they_hold(zipped):
    for weight in (torch.zeros(1).expand(10**5, 10**5), torch.zeros(2**40, device="meta")):
        buffer = io.BytesIO()
        torch.save({"action_net.weight": weight}, buffer)
        rewrite(zipped, "policy.pth", lambda _, buffer=buffer: buffer.getvalue())
        with pytest.raises(CardError, match="states more numbers than it holds"):
            load_victim(f"sb3:{zipped}")


def card(folder, about=None, **tensors):
    folder.mkdir(exist_ok=True)
    (folder / "card.json").write_text(json.dumps(CARD | (about or {})))
    save_file(tensors or {"q.0.weight": torch.ones(2, 4), "q.0.bias": torch.zeros(2)}, folder / "weights.safetensors")
    return f"card:{folder}"


def trunk(rows, columns, hidden):
    shapes = {"trunk.0": (4, 4, 8, 8), "trunk.2": (3, 4, 4, 4), "trunk.4": (2, 3, 3, 3), "trunk.7": (6, hidden)}
    shapes["policy"] = (3, 6)
    weights = {f"{k}.weight": torch.zeros(s) for k, s in shapes.items()}
    return weights | {f"{k}.bias": torch.zeros(s[0]) for k, s in shapes.items()}


def test_observations_of_a_card(tmp_path):
    layers = {"kind": "layers", "output": "logits", "policy": [{"kind": "flatten"}]}
    for shape in ([4, 2**20, 84], [4, 10**300, 84], [4, -1, 84], [0]):
        ref = card(tmp_path / "c", {"network": layers, "spaces": {"observation": {"shape": shape}}})
        with pytest.raises(CardError, match="cannot read"):
            load_victim(ref)


def test_weights_without_values(tmp_path):
    ref = card(tmp_path / "c", None, **{"q.0.weight": torch.zeros(0, 2**40), "q.0.bias": torch.zeros(1)})
    with pytest.raises(CardError, match=r"policy\.0\.weight must hold finite floats"):
        load_victim(ref)


def test_headers_of_safetensors(tmp_path):
    ref = card(tmp_path / "c")
    path = tmp_path / "c" / "weights.safetensors"
    for data in (
        (2**62).to_bytes(8, "little") + b"{}",
        (2**27).to_bytes(8, "little") + b" " * 100,
        b'\x50\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}    ',
        b"",
        b"PK\x03\x04",
    ):
        path.write_bytes(data)
        with pytest.raises(CardError, match=r"weights\.safetensors"):
            load_victim(ref)


def test_sizes_of_files(tmp_path):
    ref = card(tmp_path / "c")
    with pytest.raises(CardError, match=r"card.json: \d+ bytes, at most 50 are read \(max_bytes= raises that\)"):
        load_victim(ref, max_bytes=50)
    assert load_victim(ref, max_bytes=10_000).kind == "q"
    with (tmp_path / "c" / "weights.safetensors").open("r+b") as file:
        file.truncate(2**40)  # sparse: it takes no room
    with pytest.raises(CardError, match="1099511627776 bytes, at most"):
        load_victim(ref)
    for wrong in (0, -1, True, 1.5, "1"):
        with pytest.raises(CardError, match="max_bytes must be"):
            load_victim(ref, max_bytes=wrong)


def folders(tmp_path):
    """A card, a critic's and an adversary's folder, and a zip, with what reads each."""
    return {
        "card.json": lambda: load_victim(f"card:{tmp_path}"),
        "weights.safetensors": lambda: load_victim(f"card:{tmp_path}"),
        "critic": lambda: Critic(str(tmp_path)),
        "director": lambda: load_director(tmp_path),
    }


@every_case("kind", ["fifo", "folder", "device"])
def test_what_is_no_file(kind, tmp_path):
    for name, read in folders(tmp_path).items():
        card(tmp_path)
        for file in ("card.json", "weights.safetensors") if "." not in name else (name,):
            (tmp_path / file).unlink()
            if kind == "fifo":
                os.mkfifo(tmp_path / file)
            elif kind == "folder":
                (tmp_path / file).mkdir()
            else:
                (tmp_path / file).symlink_to("/dev/zero")
        with pytest.raises(CardError, match="cannot read"):
            read()
        for file in ("card.json", "weights.safetensors"):
            (tmp_path / file).rmdir() if (tmp_path / file).is_dir() else (tmp_path / file).unlink()
    with pytest.raises(CardError, match=r"cannot read .*(directory|regular file)"):
        read_bytes(tmp_path)


def test_all_of_them_in_little_memory(good, tmp_path):
    """In a process that may take 600 MB more than it has after its imports."""
    for i, (changes, _) in enumerate(DATA.values()):
        (tmp_path / f"{i}.zip").write_bytes(good)
        edit(tmp_path / f"{i}.zip", **changes)
    deflated(tmp_path / "bomb.zip", "data", bytes(2**24))
    deflated(tmp_path / "bomb.zip", "policy.pth", b"")
    stated = (2**24).to_bytes(4, "little"), (3 * 10**9).to_bytes(4, "little")
    (tmp_path / "bomb.zip").write_bytes((tmp_path / "bomb.zip").read_bytes().replace(*stated))
    cnn = {"network": {"kind": "categorical-cnn"}, "spaces": {"observation": {"shape": [4, 4_000_000_000, 84]}}}
    card(tmp_path / "card", cnn, **trunk(84, 84, 98))
    wide = {"kind": "layers", "output": "logits", "policy": [{"kind": "conv", "stride": 1}, {"kind": "flatten"}]}
    about = {"network": wide, "spaces": {"observation": {"shape": [4, 1000, 1000]}}}
    card(tmp_path / "wide", about, **{"policy.0.weight": torch.ones(999, 4, 1, 1), "policy.0.bias": torch.ones(999)})
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04]r\xff\xff\xff\x7f.")
    code = """
        import resource, sys, glob
        import torch, stable_baselines3
        from adv_wrappers import AdvWrappersError, load_victim
        from adv_wrappers.victims.sb3.vecnormalize import read_statistics
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 600 * 2**20,) * 2)
        for path in sorted(glob.glob(sys.argv[1] + "/*")):
            try:
                if path.endswith(".pkl"):
                    read_statistics(path)
                else:
                    load_victim(("sb3:" if path.endswith(".zip") else "card:") + path)
            except AdvWrappersError as error:
                assert "emory" not in str(error), error
                print(path.split("/")[-1])
    """
    out = python(textwrap.dedent(code), str(tmp_path))
    assert out.returncode == 0, out.stderr
    assert len(out.stdout.split()) == len(DATA) + 4


def test_what_is_large_and_good_is_read(tmp_path):
    """Limits are for what is stated and not held: a dictionary of images and a deep network pass."""
    for i, made in enumerate(
        (model(sb3.PPO, DICT, BOX, {"net_arch": [8]}), model(sb3.PPO, VECTOR, TWO, {"net_arch": [4] * 40}))
    ):
        made.save(tmp_path / f"{i}.zip")
        assert load_victim(f"sb3:{tmp_path / f'{i}.zip'}").kind in ("gaussian", "logits")
