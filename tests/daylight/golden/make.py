"""Make golden.json and golden.npz: what OpenCV 4.12 does to pictures that this script makes itself.

    python -m venv golden && golden/bin/pip install numpy==2.2.6 opencv-python-headless==4.12.0.88
    golden/bin/python tests/daylight/golden/make.py

Nothing of adv_wrappers is used. A case is a transform of a batch of three pictures ``[3, H, W, K]`` with parameters,
and goes by a digest of the result's bytes; a few results are kept whole, so that a difference can be looked at.
OpenCV is called picture by picture. Its later versions warp by another rule, hence the pinned version.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import cv2
import numpy as np

HERE = Path(__file__).parent
VERSION = "4.12.0"
LARGE = ((84, 84, 4), (210, 160, 3))
ODD = ((83, 85, 1), (7, 5, 3), (33, 17, 4), (1, 1, 1), (2, 3, 1))
COLOURS = ((7, 5, 3), (1, 1, 3), (2, 3, 3), (33, 18, 3), (16, 48, 3))
BORDERS = {
    "replicate": cv2.BORDER_REPLICATE, "zero": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101,
    "wrap": cv2.BORDER_WRAP,
}  # fmt: skip
FLAGS = {"bilinear": cv2.INTER_LINEAR, "nearest": cv2.INTER_NEAREST}
# Moves (right, down) of the corners top left, top right, bottom right, bottom left for a norm of one.
PATTERNS = {
    "top": ((1, 0), (-1, 0), (0, 0), (0, 0)), "bottom": ((0, 0), (0, 0), (-1, 0), (1, 0)),
    "left": ((0, 1), (0, 0), (0, 0), (0, -1)), "right": ((0, 0), (0, 1), (0, -1), (0, 0)),
}  # fmt: skip
SCALES = (
    (1, 0), (0.5, 0), (0.5, 0.5), (-1, 255), (0, 77), (0.1, 0.05), (3.3, -127.5), (1.5, -0.5), (0.3333, 12.3),
    (-0.7, 30.25), (17.25, -2000), (1e-3, 0.4), (2.5, -1e4), (1.2, 40), (0.9, 20), (1.7, 40), (2.4, -260), (2.4, -275),
)  # fmt: skip
DEGREES = (3, 1.4, 1.6, 1.8, 5, -3, 0, 45, 90, 180, 0.01, -171.3)
NORMS = (0, 0.5, 1, 1.37, 2, 3)
CORNERS = (
    ((1, 2), (-3, 0.5), (-2.25, -1), (0, -3)), ((-2, -1), (3, -2.5), (1.75, 2), (-0.1, 0)),
    ((0, 0), (0, 0), (-0.3, -1.1), (0, 0)),
)  # fmt: skip
MOVES = (
    (0, 0), (1000, 1), (-170, 212), (-333, -500), (60, 0), (0, -70), (90, 100), (1, 0), (0, 1), (1, 1), (1, 2), (2, 2),
    (-1, -2), (6, -9), (2, 1), (-7, 3),
)  # fmt: skip
KEPT = ((33, 17, 4), (33, 18, 3))  # sizes whose last case of every kind is kept whole

Case = tuple[str, tuple[int, int, int], dict[str, Any]]


def noise(count: int, seed: int) -> np.ndarray:
    """uint8 by splitmix64: a function of the seed and of nothing else."""
    with np.errstate(over="ignore"):
        z = (np.arange(1, count // 8 + 2, dtype=np.uint64) + np.uint64(seed << 32)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z.astype("<u8").view(np.uint8)[:count]


def pictures(height: int, width: int, channels: int) -> np.ndarray:
    """uint8 ``[3, H, W, K]``: noise, slopes with a little noise on them, and flat areas with sharp edges."""
    shape = (height, width, channels)
    random = noise(height * width * channels, seed=height * 1000 + width).reshape(shape)
    row, column, channel = np.ogrid[:height, :width, :channels]
    slopes = (row * 255 // max(1, height - 1) + column * (2 + channel) + random // 64) % 511
    slopes = np.where(slopes > 255, 510 - slopes, slopes)
    game = np.full(shape, 52, np.uint8)
    game[...] += (channel * 30).astype(np.uint8)
    game[: height // 7], game[height - height // 12 :] = 0, 236
    game[height // 4 : height // 2, width // 9 : width // 9 + 2] = 255
    game[height // 3 : height // 3 * 2, width - width // 8 - 2 : width - width // 8] = 147
    for k in range(channels):
        game[height // 2 + k : height // 2 + k + 2, width // 3 + 2 * k : width // 3 + 2 * k + 2, k] = 200 + k
    return np.stack([random, slopes.astype(np.uint8), game])


def cases() -> Iterator[Case]:
    """Transform, size and parameters of every case."""
    for size in (*LARGE, *ODD):
        for alpha, beta in SCALES:
            for rule in ("clip", "abs"):
                yield "brightness", size, {"alpha": alpha, "beta": beta, "rule": rule}
        for k in (3, 5, 7):
            yield "median-blur", size, {"k": k}
        for dx, dy in MOVES:
            for border in BORDERS:
                yield "shift", size, {"dx": dx, "dy": dy, "border": border}
        how = [{"border": border, "interpolation": flag} for border in BORDERS for flag in FLAGS]
        for degrees in DEGREES:
            for words in how:
                yield "rotation", size, {"degrees": degrees, **words}
        for norm in NORMS if size[0] > 2 else ():
            for pattern in PATTERNS if norm and norm * 2 < min(size[:2]) - 1 else ("top",) if norm == 0 else ():
                for words in how:
                    yield "perspective", size, {"norm": norm, "pattern": pattern, **words}
        for corners in CORNERS if size[0] > 7 else ():
            for words in how:
                yield "perspective", size, {"corners": corners, **words}
    for quality in range(5, 101):
        yield "jpeg", LARGE[0], {"quality": quality}
        yield "jpeg", LARGE[1], {"quality": quality, "subsampling": "4:2:0"}
    for quality in (5, 50, 77, 95, 100, 30):
        for size in ODD:
            if size[2] != 3:
                yield "jpeg", size, {"quality": quality}
        for subsampling in ("4:2:0", "4:2:2", "4:4:4"):
            for size in (*COLOURS, *LARGE[1:]):
                if size not in LARGE or subsampling != "4:2:0":
                    yield "jpeg", size, {"quality": quality, "subsampling": subsampling}


def name_of(case: Case) -> str:
    """A case in words."""
    words = (f"{key}={value}" for key, value in case[2].items())
    return " ".join([case[0], "x".join(map(str, case[1])), *words]).replace(", ", ",")


def digest(array: np.ndarray) -> str:
    """The first 128 bits of the sha256 of an array's bytes."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


def clipped(alpha: float, beta: float) -> np.ndarray:
    """``clip(s * alpha + beta)`` of the 256 grey levels, float32 parameters, rounded to float32 once, half to even."""
    a, b = Fraction(float(np.float32(alpha))), Fraction(float(np.float32(beta)))
    values = [np.rint(np.float32(float(a * s + b))) for s in range(256)]
    return np.clip(values, 0, 255).astype(np.uint8)


def jpeg(image: np.ndarray, quality: int, subsampling: str = "") -> np.ndarray:
    """RGB through one file, or every channel through a grey one."""
    if not subsampling:
        files = [cv2.imencode(".jpg", plane, [cv2.IMWRITE_JPEG_QUALITY, quality])[1] for plane in cv2.split(image)]
        return np.stack([cv2.imdecode(file, cv2.IMREAD_GRAYSCALE) for file in files], -1)
    factor = getattr(cv2, "IMWRITE_JPEG_SAMPLING_FACTOR_" + subsampling.replace(":", ""))
    settings = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
    file = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), settings)[1]
    return cv2.cvtColor(cv2.imdecode(file, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def transformed(transform: str, image: np.ndarray, p: dict[str, Any]) -> np.ndarray:
    """One picture ``[H, W, K]`` through OpenCV."""
    height, width = image.shape[:2]
    if transform == "brightness":
        if p["rule"] == "abs":
            return cv2.convertScaleAbs(image, alpha=p["alpha"], beta=p["beta"])
        return cv2.LUT(image, clipped(p["alpha"], p["beta"]))
    if transform == "median-blur":
        return cv2.medianBlur(image, p["k"])
    if transform == "jpeg":
        return jpeg(image, **p)
    options = {"flags": FLAGS[p.get("interpolation", "bilinear")], "borderMode": BORDERS[p["border"]]}
    if transform == "perspective":
        right, bottom = width - 1, height - 1
        source = np.array([(0, 0), (right, 0), (right, bottom), (0, bottom)], np.float64)
        moves = np.array(p["corners"] if "corners" in p else PATTERNS[p["pattern"]]) * p.get("norm", 1)
        matrix = cv2.getPerspectiveTransform(source.astype(np.float32), (source + moves).astype(np.float32))
        return cv2.warpPerspective(image, matrix, (width, height), **options)
    if transform == "shift":
        matrix = np.array([[1, 0, p["dx"]], [0, 1, p["dy"]]], np.float64)
    else:
        matrix = cv2.getRotationMatrix2D(((width - 1) / 2, (height - 1) / 2), p["degrees"], 1)
    return cv2.warpAffine(image, matrix, (width, height), **options)


def main() -> None:
    """Write both files."""
    if cv2.__version__ != VERSION:
        raise SystemExit(f"these files need OpenCV {VERSION}, this is {cv2.__version__}")
    sizes = {"x".join(map(str, size)): pictures(*size) for _, size, _ in cases()}
    found: dict[str, str] = {}
    kept: dict[Any, tuple[str, np.ndarray]] = {}
    for transform, size, parameters in cases():
        name, batch = name_of((transform, size, parameters)), sizes["x".join(map(str, size))]
        out = np.stack([transformed(transform, image, parameters).reshape(size) for image in batch])
        found[name] = digest(out)
        if size in KEPT:
            kind = (parameters.get(word) for word in ("rule", "border", "interpolation", "subsampling"))
            kept[(transform, size, *kind)] = name, out
    head = {
        "opencv": cv2.__version__,
        "numpy": np.__version__,
        "platform": f"{platform.system()} {platform.machine()}",
        "make": hashlib.sha256(Path(__file__).read_bytes()).hexdigest(),
        "inputs": {name: digest(batch) for name, batch in sizes.items()},
    }
    (HERE / "golden.json").write_text(json.dumps({**head, "cases": found}, indent=0) + "\n", encoding="utf-8")
    np.savez_compressed(HERE / "golden.npz", **dict(kept.values()))
    print(f"{len(found)} cases, {len(kept)} kept whole")


if __name__ == "__main__":
    main()
